// A file, translated line by line in this browser's time; the server never sees its name.

import { ask } from "./api.js";
import { find, options, save } from "./dom.js";
import { length } from "./text.js";
import { Trouble } from "./trouble.js";

const LARGEST = 5_000_000; // bytes
const MOST_WAITS = 20; // for a server that is busy, before it is an error

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
    const columns = Math.max(...this.rows.cells.map((row) => row.length));
    const numbers = Array.from({ length: columns }, (_, index) => [String(index), String(index + 1)]);
    options(find("column"), numbers);
    find("column-label").hidden = columns < 2;
  }

  async #start() {
    if (!this.rows) return;
    const request = (this.request = new AbortController());
    const column = Number(find("column").value);
    const texts = this.rows.cells.map((row) => row[column] ?? "");
    this.trouble.clear();
    this.#working(true);
    try {
      const translations = await this.#translate(texts, request.signal);
      this.#finish(translations);
    } catch (error) {
      if (error.name !== "AbortError") this.trouble.show(error, () => this.#start());
      this.#tell("Stopped.");
    } finally {
      this.#working(false);
    }
  }

  async #translate(texts, signal) {
    const { limits, languages } = this.context();
    const progress = find("file-progress");
    progress.max = texts.length;
    const translations = [];
    for (const batch of batches(texts, limits)) {
      progress.value = translations.length;
      this.#tell(`${translations.length} of ${texts.length} lines`);
      const { translations: found } = await patiently(
        () => ask("translate", { text: batch, ...languages }, signal),
        (seconds) => this.#tell(`The server is busy; going on in ${seconds} s`),
        signal,
      );
      translations.push(...found.map((one) => one.text));
    }
    progress.value = texts.length;
    this.#tell(`${texts.length} of ${texts.length} lines`);
    return translations;
  }

  #finish(translations) {
    const { cells, separator, table } = this.rows;
    // A table gets a column more; a line break within a translation would break the table.
    const lines = translations.map((text, row) => (table ? [...cells[row], text].join("\t") : text));
    const [file] = find("file-input").files;
    const { target } = this.context().languages;
    this.result = { name: resultName(file.name, target), content: lines.join(separator) };
    find("file-result").hidden = false;
    find("file-result").focus();
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
  const separator = text.includes("\r\n") ? "\r\n" : "\n";
  const cells = text.split(separator).map((line) => (table ? line.split("\t") : [line]));
  return { cells, separator, table };
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

// Waits as long as a busy server says, then goes on.
async function patiently(send, tell, signal) {
  for (let waits = 0; ; waits++) {
    try {
      return await send();
    } catch (error) {
      if (!error.retryAfter || waits === MOST_WAITS) throw error;
      tell(error.retryAfter);
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
