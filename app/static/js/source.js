// The text field: its count, its marks, and what is wrong with what is in it.

import { find, make } from "./dom.js";
import { length } from "./text.js";

export class Source {
  constructor() {
    this.field = find("source");
    this.limit = Infinity;
    this.field.addEventListener("input", () => this.refresh());
  }

  get text() {
    return this.field.value;
  }

  set text(text) {
    this.field.value = text;
    this.refresh();
  }

  get blank() {
    return !this.text.trim();
  }

  get tooLong() {
    return length(this.text) > this.limit;
  }

  refresh() {
    this.mark([]);
    const count = find("count");
    count.textContent = `${format(length(this.text))} / ${format(this.limit)}`;
    count.classList.toggle("over", this.tooLong);
    find("clear").disabled = !this.text;
  }

  // Lights up parts of the text.
  mark(parts) {
    const pieces = [];
    let end = 0;
    for (const part of parts) {
      pieces.push(this.text.slice(end, part.start), make("mark", {}, this.text.slice(part.start, part.end)));
      end = part.end;
    }
    find("echo").replaceChildren(...pieces, this.text.slice(end));
  }
}

const format = (number) => (Number.isFinite(number) ? number.toLocaleString("en") : "…");
