// The section that translates a document or a table.

import { DocumentJob } from "./document.js";
import { find, focusUnlessBusy, make, save, setOptions } from "./dom.js";
import { onDrop } from "./drop.js";
import { ErrorMessage } from "./error_message.js";
import { nameOf } from "./languages.js";
import { isTable, Table, TableJob } from "./table.js";

export class Upload {
  // `context()` returns the languages, the formats, the limits and the fields of a request.
  constructor(context) {
    this.context = context;
    this.errorMessage = new ErrorMessage(find("file-error"), find("file-input"));
    find("file-input").addEventListener("change", () => this.#read());
    find("file-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#start();
    });
    find("file-stop").addEventListener("click", () => this.request?.abort());
    find("file-result").addEventListener("click", () => save(this.result.name, this.result.content));
    onDrop((files) => this.#choose(files));
  }

  // Chooses a dropped file.
  #choose(files) {
    if (find("file-input").disabled) return;
    find("file").open = true;
    find("file").scrollIntoView({ block: "nearest" });
    if (files.length > 1) {
      this.#refuse("These are several files. Drop one file.");
      return;
    }
    find("file-input").files = files;
    this.#read();
  }

  async #read() {
    this.errorMessage.clear();
    this.#showResult();
    this.file = this.table = undefined;
    for (const id of ["file-work", "column-label", "header-label"]) find(id).hidden = true;
    const [file] = find("file-input").files;
    if (!file) return;
    try {
      const bytes = await this.#bytes(file);
      if (file !== find("file-input").files[0]) return; // the user has chosen another file
      if (isTable(file.name)) this.#showTable(new Table(bytes));
      this.file = { name: file.name, bytes };
    } catch (error) {
      this.#refuse(error.message);
    }
  }

  async #bytes(file) {
    const { formats, limits } = this.context();
    const known = isTable(file.name) || !formats.length || formats.includes(suffix(file.name));
    if (!known) {
      throw new Error(`This format is unknown. Choose a file that ends with ${listOf(formats)}.`);
    }
    const maxBytes = limits.max_document_bytes;
    if (file.size > maxBytes) throw new Error(`The file is larger than ${maxBytes / 1e6} MB. Divide it.`);
    try {
      return await file.arrayBuffer();
    } catch {
      throw new Error("The browser cannot read this file. Choose it again.");
    }
  }

  #showTable(table) {
    const numbers = Array.from({ length: table.columns }, (_, index) => [String(index), String(index + 1)]);
    setOptions(find("column"), numbers);
    find("column-label").hidden = numbers.length < 2;
    find("header-label").hidden = false;
    find("header").checked = table.hasHeader;
    this.table = table;
  }

  // Starts a job. Later changes of languages, glossary or column do not affect it.
  #start() {
    if (!this.file) return;
    const { name, bytes } = this.file;
    const { languages, limits, fields } = this.context();
    const [column, header] = [Number(find("column").value), find("header").checked];
    const job = this.table
      ? new TableJob(this.table, { column, header, languages, limits, fields })
      : new DocumentJob(bytes, suffix(name), { languages, fields });
    this.#run(job, resultName(name, languages.target));
  }

  // Runs a job. After an error, the user can run it again.
  async #run(job, name) {
    const request = (this.request = new AbortController());
    this.errorMessage.clear();
    this.#showResult();
    this.#setRunning(true);
    try {
      const result = await job.run(this, request.signal);
      this.#showResult({ ...result, name });
    } catch (error) {
      if (error.name !== "AbortError") this.errorMessage.show(error, () => this.#run(job, name));
      this.#showStatus("Stopped.");
    } finally {
      this.#setRunning(false);
    }
  }

  // Shows the progress of a job. Before the number of parts is known, it shows only `text`.
  progress(done, total, text) {
    const bar = find("file-progress");
    if (total) Object.assign(bar, { max: total, value: done });
    else bar.removeAttribute("value");
    this.#showStatus(total ? `${done} of ${total} ${text}` : text);
  }

  // Shows that a job waits before it sends a request again.
  wait({ message, retryAfter }) {
    this.#showStatus(`${message} Trying again in ${retryAfter} s.`);
  }

  // Offers the result of a job, or removes the previous one.
  #showResult(result) {
    this.result = result;
    const notices = result?.notices ?? [];
    find("file-result").hidden = !result;
    find("file-notices").hidden = !notices.length;
    find("file-notices-list").replaceChildren(...notices.map((notice) => make("li", { dir: "auto" }, notice)));
    if (!result) return;
    const { detected } = result;
    find("file-progress").value = find("file-progress").max;
    this.#showStatus(detected ? `Done. Detected language: ${nameOf(detected)}.` : "Done.");
  }

  #setRunning(running) {
    find("file-work").hidden = false;
    find("file-start").disabled = find("file-input").disabled = running;
    find("file-stop").hidden = !running;
    if (this.result) focusUnlessBusy(find("file-result"), find("file"));
  }

  #refuse(message) {
    this.errorMessage.show({ status: 422, message });
  }

  #showStatus(text) {
    find("file-status").textContent = text;
  }
}

// Returns the last suffix of a file name in lower case, such as ".docx".
const suffix = (name) => /(\.[^./\\]*)?$/.exec(name)[0].toLowerCase();

const listOf = (values) => new Intl.ListFormat("en", { type: "disjunction" }).format(values);

// Returns letter.de.docx for letter.docx. A folder in the name is removed.
function resultName(name, target) {
  const [, stem, extension] = /([^/\\]*?)(\.[^./\\]*)?$/.exec(name);
  return `${stem}.${target}${extension ?? ""}`;
}
