// Translation of a column of a tab-separated table. The browser sends the cells of the column, and adds
// the translations as the last column.

import { post, sendWithRetry } from "./api.js";
import { length } from "./text.js";

const MAX_BATCH = 32; // texts per request, even if the server allows more

export const isTable = (name) => /\.(tsv|tab)$/i.test(name);

export class Table {
  // Throws an Error if the content is not a table in UTF-8.
  constructor(bytes) {
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      throw new Error("The table is not UTF-8 text. Save it as UTF-8.");
    }
    if (!text.trim()) throw new Error("The table is empty. Choose another file.");
    Object.assign(this, parse(text));
  }

  // Whether the first line seems to name the columns.
  get hasHeader() {
    return looksLikeHeader(this.cells);
  }
}

export class TableJob {
  // `options` are {column, header, languages, limits, fields}.
  constructor(table, options) {
    Object.assign(this, { table, options });
    this.translations = [];
    this.notices = [];
    this.parts = table.cells.flatMap((row, index) =>
      options.header && index === 0
        ? []
        : split(row[options.column] ?? "", options.limits.max_chars).map((text) => ({ row: index, text })),
    );
  }

  // Translates the table, or resumes after an error.
  async run(view, signal) {
    const { languages, limits, fields } = this.options;
    this.#showProgress(view);
    const texts = this.parts.slice(this.translations.length).map(({ text }) => text);
    for (const batch of batches(texts, limits)) {
      const response = await sendWithRetry(
        () => post("translate", { text: batch, ...languages, ...fields }, signal),
        (error) => view.wait(error),
        signal,
      );
      this.translations.push(...response.translations.map((translation) => translation.text));
      this.notices.push(...(response.notices ?? []));
      this.#showProgress(view);
    }
    return { content: content(this.table, this.options, this.parts, this.translations), notices: this.notices };
  }

  #showProgress(view) {
    const { length: total } = this.table.cells;
    view.progress(this.parts[this.translations.length]?.row ?? total, total, "lines");
  }
}

function parse(text) {
  const parts = text.split(/(\r\n|\n)/); // line, line break, line, ...
  if (parts.at(-1) === "") parts.pop(); // after the last line break
  const lines = parts.filter((_, index) => index % 2 === 0);
  const ends = parts.filter((_, index) => index % 2 === 1);
  const cells = lines.map((line) => line.split("\t"));
  const columns = cells.reduce((most, row) => Math.max(most, row.length), 1);
  return { cells, columns, ends };
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

// Returns the table with the translations as an additional last column.
function content({ cells, columns, ends }, { column, header, languages }, parts, translations) {
  const rows = cells.map(() => "");
  parts.forEach(({ row }, index) => {
    rows[row] += translations[index];
  });
  if (header) rows[0] = `${cells[0][column] ?? ""} (${languages.target})`;
  const lines = rows.map((text, row) => {
    const cell = text.replace(/[\t\r\n]+/g, " "); // a line break would add a line
    if (cells[row].join("\t") === "") return ""; // an empty line, not a row of empty cells
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
