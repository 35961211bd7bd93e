// Translation of a file by lines. The browser reads the file; the server does not receive its name.

import { post } from "./api.js";
import { find, focusUnlessBusy, save, setOptions } from "./dom.js";
import { ErrorMessage } from "./error_message.js";
import { length } from "./text.js";

const MAX_BYTES = 5_000_000;
const MAX_BATCH = 32; // texts per request, even if the server allows more

export class Upload {
  // `context()` returns the languages and the limits of a request.
  constructor(context) {
    this.context = context;
    this.errorMessage = new ErrorMessage(find("file-error"), find("file-input"));
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
    this.errorMessage.clear();
    this.parsed = undefined;
    find("file-result").hidden = find("file-work").hidden = find("column-label").hidden = true;
    const [file] = find("file-input").files;
    if (!file) return;
    try {
      this.parsed = parse(await decode(file), isTable(file.name));
    } catch (error) {
      this.errorMessage.show({ status: 422, message: error.message });
      return;
    }
    const { columns } = this.parsed;
    const numbers = Array.from({ length: columns }, (_, index) => [String(index), String(index + 1)]);
    setOptions(find("column"), numbers);
    find("column-label").hidden = numbers.length < 2;
  }

  // Starts a job. Later changes of languages or column do not affect it.
  #start() {
    if (!this.parsed) return;
    const column = Number(find("column").value);
    const [file] = find("file-input").files;
    const texts = this.parsed.cells.map((row) => row[column] ?? "");
    this.job = { ...this.context(), ...this.parsed, name: file.name, texts, translations: [] };
    const tooLong = texts.findIndex((text) => length(text) > this.job.limits.max_chars);
    if (tooLong < 0) return this.#run();
    const message = `Line ${tooLong + 1} is longer than ${this.job.limits.max_chars} characters.`;
    this.errorMessage.show({ status: 422, message });
  }

  // Runs the job, or resumes it after an error.
  async #run() {
    const request = (this.request = new AbortController());
    this.errorMessage.clear();
    this.#setRunning(true);
    try {
      await this.#translate(this.job, request.signal);
      this.#finish(this.job);
    } catch (error) {
      if (error.name !== "AbortError") this.errorMessage.show(error, () => this.#run());
      this.#showStatus("Stopped.");
    } finally {
      this.#setRunning(false);
    }
  }

  async #translate({ texts, translations, languages, limits }, signal) {
    const progress = find("file-progress");
    const showProgress = () => {
      progress.max = texts.length;
      progress.value = translations.length;
      this.#showStatus(`${translations.length} of ${texts.length} lines`);
    };
    showProgress();
    for (const batch of batches(texts.slice(translations.length), limits)) {
      const response = await sendWithRetry(
        () => post("translate", { text: batch, ...languages }, signal),
        ({ message, retryAfter }) => this.#showStatus(`${message} Trying again in ${retryAfter} s.`),
        signal,
      );
      translations.push(...response.translations.map((translation) => translation.text));
      showProgress();
    }
  }

  #finish(job) {
    this.result = { name: resultName(job.name, job.languages.target), content: content(job) };
    find("file-result").hidden = false;
    focusUnlessBusy(find("file-result"), find("file"));
  }

  #setRunning(running) {
    find("file-work").hidden = false;
    find("file-result").hidden ||= running;
    find("file-start").disabled = find("file-input").disabled = running;
    find("file-stop").hidden = !running;
  }

  #showStatus(text) {
    find("file-status").textContent = text;
  }
}

const isTable = (name) => /\.(tsv|tab)$/i.test(name);

async function decode(file) {
  if (file.size > MAX_BYTES) throw new Error("The file is larger than 5 MB.");
  const bytes = await file.arrayBuffer();
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error("The file is not UTF-8 text.");
  }
  if (!text.trim()) throw new Error("The file is empty.");
  return text;
}

function parse(text, table) {
  const parts = text.split(/(\r\n|\n)/); // line, line break, line, ...
  if (parts.at(-1) === "") parts.pop(); // after the last line break
  const lines = parts.filter((_, index) => index % 2 === 0);
  const ends = parts.filter((_, index) => index % 2 === 1);
  const cells = lines.map((line) => (table ? line.split("\t") : [line]));
  const columns = cells.reduce((most, row) => Math.max(most, row.length), 1);
  return { cells, columns, ends, table };
}

// Returns one translation per line. A table gets an additional last column.
function content({ cells, columns, ends, table, translations }) {
  const lines = translations.map((text, row) => {
    const cell = text.replace(/[\t\r\n]+/g, " "); // a line break would add a line
    if (!table || !cells[row].join("")) return cell;
    return [...cells[row], ...Array(columns - cells[row].length).fill(""), cell].join("\t");
  });
  return lines.map((line, row) => line + (ends[row] ?? "")).join("");
}

// Yields batches of texts within the limits of a request.
function* batches(texts, { max_chars, max_texts, max_sentences }) {
  let batch = [];
  let characters = 0;
  const maxTexts = Math.min(max_texts, max_sentences, MAX_BATCH);
  for (const text of texts) {
    const textLength = length(text);
    if (batch.length && (batch.length === maxTexts || characters + textLength > max_chars)) {
      yield batch;
      [batch, characters] = [[], 0];
    }
    batch.push(text);
    characters += textLength;
  }
  if (batch.length) yield batch;
}

// Repeats a request as long as the server is overloaded or cannot be reached.
async function sendWithRetry(send, onWait, signal) {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!error.retryAfter) throw error;
      onWait(error);
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

// Returns lines.de.txt for lines.txt. A folder in the name is removed.
function resultName(name, target) {
  const [, stem, extension] = /([^/\\]*?)(\.[^./\\]*)?$/.exec(name);
  return `${stem}.${target}${extension ?? ""}`;
}
