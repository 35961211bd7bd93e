// The text field: character count, limit and highlighted words.

import { find, make } from "./dom.js";
import { load, store } from "./storage.js";
import { length } from "./text.js";

const KEY = "text";
const MAX_UNDO_LINES = 200; // the browser inserts each line separately, which takes long for more

export class Source {
  constructor() {
    this.field = find("source");
    this.field.value ||= load("sessionStorage", KEY) ?? "";
    this.limit = Infinity;
    this.field.addEventListener("input", () => this.refresh());
  }

  get text() {
    return this.field.value;
  }

  // Replaces the text, so that the browser can undo it, and fires one input event.
  replace(text) {
    const { activeElement } = document;
    const mute = (event) => event.stopImmediatePropagation(); // one event per line
    this.field.addEventListener("input", mute, { capture: true });
    this.field.focus({ preventScroll: true });
    this.field.select();
    const undoable = text.split("\n", MAX_UNDO_LINES + 1).length <= MAX_UNDO_LINES;
    if (!undoable || !document.execCommand(text ? "insertText" : "delete", false, text)) this.field.value = text;
    this.field.removeEventListener("input", mute, { capture: true });
    this.field.dispatchEvent(new Event("input"));
    activeElement.focus({ preventScroll: true });
  }

  get blank() {
    return !this.text.trim();
  }

  get tooLong() {
    return length(this.text) > this.limit;
  }

  refresh() {
    store("sessionStorage", KEY, this.text);
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
    const echo = find("echo");
    echo.replaceChildren(...parts, this.text.slice(end));
    scrollTo(echo.querySelector("mark"), echo.parentElement);
  }
}

// Scrolls a box to an element inside, unless it is visible.
function scrollTo(element, box) {
  if (!element) return;
  const [inner, outer] = [element.getBoundingClientRect(), box.getBoundingClientRect()];
  const visible = inner.top >= outer.top && inner.bottom <= outer.bottom;
  if (!visible) box.scrollTop += inner.top - outer.top - outer.height / 2;
}

export const format = (number) => (Number.isFinite(number) ? number.toLocaleString("en") : "…");
