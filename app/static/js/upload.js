// A file, translated line by line in this browser's time; the server never sees its name.

import { ask } from "./api.js";
import { find, lead, options, save } from "./dom.js";
import { length } from "./text.js";
import { Trouble } from "./trouble.js";

const LARGEST = 5_000_000; // bytes

export class Upload {
  // `context()` gives the languages and the limits of a request.
  constructor(context) {
    this.context = context;
    this.trouble = new Trouble(find("file-error"), find("file-input"));
    find("file-input").addEventListener("change", () => this.#read());
    find("file-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#start();
    });
    find("file-stop").addEventListener("click", () => this.request?.abort());
    find("file-result").addEventListener("click", () =>
      save(this.result.name, "text/plain;charset=utf-8", this.result.content),
    );
  }

  async #read() {
    this.trouble.clear();
    this.rows = undefined;
    find("file-result").hidden = find("file-work").hidden = find("column-label").hidden = true;
    const [file] = find("file-input").files;
    if (!file) return;
    try {
      this.rows = rows(await decode(file), isTable(file.name));
    } catch (error) {
      this.trouble.show({ status: 422, message: error.message });
      return;
    }
    const numbers = Array.from({ length: this.rows.columns }, (_, index) => [String(index), String(index + 1)]);
    options(find("column"), numbers);
    find("column-label").hidden = numbers.length < 2;
  }

  // What was asked for stays what it is, whatever is chosen meanwhile.
  #start() {
    if (!this.rows) return;
    const column = Number(find("column").value);
    const [file] = find("file-input").files;
    const texts = this.rows.cells.map((row) => row[column] ?? "");
    this.job = { ...this.context(), ...this.rows, name: file.name, texts, translations: [] };
    const long = texts.findIndex((text) => length(text) > this.job.limits.max_chars);
    if (long < 0) return this.#run();
    const message = `Line ${long + 1} is longer than ${this.job.limits.max_chars} characters.`;
    this.trouble.show({ status: 422, message });
  }

  // Begins the job, or goes on where it failed.
  async #run() {
    const request = (this.request = new AbortController());
    this.trouble.clear();
    this.#working(true);
    try {
      await this.#translate(this.job, request.signal);
      this.#finish(this.job);
    } catch (error) {
      if (error.name !== "AbortError") this.trouble.show(error, () => this.#run());
      this.#tell("Stopped.");
    } finally {
      this.#working(false);
    }
  }

  async #translate({ texts, translations, languages, limits }, signal) {
    const progress = find("file-progress");
    const done = () => {
      progress.max = texts.length;
      progress.value = translations.length;
      this.#tell(`${translations.length} of ${texts.length} lines`);
    };
    done();
    for (const batch of batches(texts.slice(translations.length), limits)) {
      const { translations: found } = await patiently(
        () => ask("translate", { text: batch, ...languages }, signal),
        ({ message, retryAfter }) => this.#tell(`${message} Going on in ${retryAfter} s.`),
        signal,
      );
      translations.push(...found.map((one) => one.text));
      done();
    }
  }

  #finish(job) {
    this.result = { name: resultName(job.name, job.languages.target), content: content(job) };
    find("file-result").hidden = false;
    lead(find("file-result"), find("file"));
  }

  #working(working) {
    find("file-work").hidden = false;
    find("file-result").hidden ||= working;
    find("file-start").disabled = find("file-input").disabled = working;
    find("file-stop").hidden = !working;
  }

  #tell(text) {
    find("file-status").textContent = text;
  }
}

const isTable = (name) => /\.(tsv|tab)$/i.test(name);

async function decode(file) {
  if (file.size > LARGEST) throw new Error("The file is larger than 5 MB.");
  const content = await file.arrayBuffer();
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    throw new Error("The file is not UTF-8 text.");
  }
  if (!text.trim()) throw new Error("The file is empty.");
  return text;
}

function rows(text, table) {
  const parts = text.split(/(\r\n|\n)/); // a line, its end, a line, ...
  if (parts.at(-1) === "") parts.pop(); // behind the end of the last line
  const lines = parts.filter((_, place) => place % 2 === 0);
  const ends = parts.filter((_, place) => place % 2 === 1);
  const cells = lines.map((line) => (table ? line.split("\t") : [line]));
  const columns = cells.reduce((most, row) => Math.max(most, row.length), 1);
  return { cells, columns, ends, table };
}

// A line a translation; in a table a column more, which is the last one of all rows.
function content({ cells, columns, ends, table, translations }) {
  const lines = translations.map((text, row) => {
    const cell = text.replace(/[\t\r\n]+/g, " "); // a break within would be a line more
    if (!table || !cells[row].join("")) return cell;
    return [...cells[row], ...Array(columns - cells[row].length).fill(""), cell].join("\t");
  });
  return lines.map((line, row) => line + (ends[row] ?? "")).join("");
}

// As many texts together as a request may have.
function* batches(texts, { max_chars, max_texts }) {
  let batch = [];
  let characters = 0;
  const most = Math.min(max_texts, 32);
  for (const text of texts) {
    const own = length(text);
    if (batch.length && (batch.length === most || characters + own > max_chars)) {
      yield batch;
      [batch, characters] = [[], 0];
    }
    batch.push(text);
    characters += own;
  }
  if (batch.length) yield batch;
}

// Waits as long as a busy server says, or as one that cannot be reached may need, and goes on.
async function patiently(send, tell, signal) {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!error.retryAfter) throw error;
      tell(error);
      await pause(1000 * error.retryAfter, signal);
    }
  }
}

const pause = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

// lines.txt becomes lines.de.txt; where it lay is nobody's business.
function resultName(name, target) {
  const [, stem, ending] = /([^/\\]*?)(\.[^./\\]*)?$/.exec(name);
  return `${stem}.${target}${ending ?? ""}`;
}
