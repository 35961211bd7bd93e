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
    for (const id of ["file-result", "file-work", "column-label", "header-label"]) find(id).hidden = true;
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
    find("header-label").hidden = !this.parsed.table;
    find("header").checked = this.parsed.table && looksLikeHeader(this.parsed.cells);
  }

  // Starts a job. Later changes of languages or column do not affect it.
  #start() {
    if (!this.parsed) return;
    const column = Number(find("column").value);
    const [file] = find("file-input").files;
    const { limits, languages } = this.context();
    const header = this.parsed.table && find("header").checked;
    const parts = this.parsed.cells.flatMap((row, index) =>
      header && index === 0 ? [] : split(row[column] ?? "", limits.max_chars).map((text) => ({ row: index, text })),
    );
    this.job = { ...this.parsed, limits, languages, column, header, parts, name: file.name, translations: [] };
    this.#run();
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

  async #translate({ cells, parts, translations, languages, limits }, signal) {
    const progress = find("file-progress");
    const showProgress = () => {
      progress.max = cells.length;
      progress.value = parts[translations.length]?.row ?? cells.length;
      this.#showStatus(`${progress.value} of ${cells.length} lines`);
    };
    showProgress();
    const texts = parts.slice(translations.length).map(({ text }) => text);
    for (const batch of batches(texts, limits)) {
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
  if (file.size > MAX_BYTES) throw new Error("The file is larger than 5 MB. Split it.");
  const bytes = await file.arrayBuffer();
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error("The file is not UTF-8 text. Save it as UTF-8.");
  }
  if (!text.trim()) throw new Error("The file is empty. Choose another file.");
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

// Returns whether the first line of a table names its columns: each cell is a word or a few, without
// digits or punctuation, and no cell is repeated.
function looksLikeHeader([first, ...others]) {
  const names = first.every((cell) => /^[\p{L}_ -]{1,40}$/u.test(cell));
  return names && others.length > 0 && first.length > 1 && new Set(first).size === first.length;
}

// Splits a text that is longer than the limit after a sentence, or else after a word.
function split(text, limit) {
  const characters = [...text];
  const parts = [];
  while (characters.length > limit) {
    const part = characters.slice(0, limit).join("");
    const [whole] = /^.*[.!?…。！？]\s+/s.exec(part) ?? /^.*\s/s.exec(part) ?? [part];
    parts.push(whole);
    characters.splice(0, length(whole));
  }
  return [...parts, characters.join("")];
}

// Returns one translation per line. A table gets an additional last column.
function content({ cells, columns, column, ends, table, header, parts, translations, languages }) {
  const rows = cells.map(() => "");
  parts.forEach(({ row }, index) => {
    rows[row] += translations[index];
  });
  if (header) rows[0] = `${cells[0][column] ?? ""} (${languages.target})`;
  const lines = rows.map((text, row) => {
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
