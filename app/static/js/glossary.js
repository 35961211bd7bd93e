// The glossary and the protection of parts of the text: fields of a request.

import { find } from "./dom.js";
import { ErrorMessage } from "./error_message.js";

export class Glossary {
  // `onChange` is called when the fields have changed.
  constructor(onChange) {
    this.onChange = onChange;
    this.input = find("glossary-input");
    this.text = "";
    this.maxLength = Infinity; // characters
    this.errorMessage = new ErrorMessage(find("glossary-error"), this.input);
    this.input.addEventListener("change", () => this.#read());
    find("protect").addEventListener("change", () => this.onChange());
    find("glossary-remove").addEventListener("click", () => {
      this.input.value = "";
      this.#read();
      this.input.focus();
    });
  }

  // The fields, without those that have their default.
  get fields() {
    return {
      ...(this.text && { glossary: this.text }),
      ...(find("protect").checked && { protect: true }),
    };
  }

  async #read() {
    this.errorMessage.clear();
    const [file] = this.input.files;
    this.text = "";
    try {
      const text = file ? await decode(file, this.maxLength) : "";
      if (file !== this.input.files[0]) return; // the user has chosen another file
      this.text = text;
    } catch (error) {
      this.errorMessage.show({ status: 422, message: error.message });
    }
    find("glossary-remove").hidden = !file;
    find("glossary-status").textContent = this.text ? `Glossary: ${file.name}` : "";
    this.onChange();
  }
}

async function decode(file, maxLength) {
  const problem = `The glossary is longer than ${maxLength.toLocaleString("en")} characters. Shorten it.`;
  if (file.size > 4 * maxLength) throw new Error(problem); // UTF-8 has at most 4 bytes per character
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error("The glossary is not UTF-8 text. Save it as UTF-8.");
  }
  if (text.length > maxLength) throw new Error(problem);
  if (!text.trim()) throw new Error("The glossary is empty. Choose another file.");
  return text;
}
