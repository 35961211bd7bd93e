// The text field: character count, limit and highlighted words.

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
    this.highlight([]);
    const count = find("count");
    count.textContent = `${format(length(this.text))} / ${format(this.limit)}`;
    count.classList.toggle("over", this.tooLong);
    find("clear").disabled = !this.text;
  }

  // Highlights words of the text, given in order.
  highlight(words) {
    const parts = [];
    let end = 0;
    for (const word of words) {
      parts.push(this.text.slice(end, word.start), make("mark", {}, this.text.slice(word.start, word.end)));
      end = word.end;
    }
    find("echo").replaceChildren(...parts, this.text.slice(end));
  }
}

const format = (number) => (Number.isFinite(number) ? number.toLocaleString("en") : "…");
