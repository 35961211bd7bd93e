// The translation: words that can be visited, and what they come from.

import { find, make, rove } from "./dom.js";
import { words } from "./text.js";

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export class Output {
  // `light` is told which source words a word comes from.
  constructor(light) {
    this.light = light;
    this.place = find("target");
    this.text = "";
    this.current = true; // whether it is the translation of the text as it is now
    this.place.addEventListener("keydown", (event) => this.#step(event));
    this.place.addEventListener("mouseleave", () => this.#leave());
    this.place.addEventListener("focusout", () => this.#leave());
  }

  // Shows a text; words of /align say more of themselves.
  show(text, language, parts = words(text, language)) {
    this.text = text;
    this.current = true;
    this.place.lang = language;
    this.place.replaceChildren(...parts.map((part) => (part.isWord ? this.#word(part) : part.text)));
    const [first] = this.#visited();
    if (first) rove(this.#visited(), first);
    this.#leave();
  }

  // The text has changed that the words come from: they say nothing of it any more.
  forget() {
    this.current = false;
    for (const word of this.#visited()) {
      word.removeAttribute("tabindex");
      word.replaceWith(word.cloneNode(true));
    }
    this.#leave();
  }

  set busy(busy) {
    this.place.setAttribute("aria-busy", String(busy));
  }

  #word(part) {
    const word = make("span", { className: part.doubtful ? "word doubtful" : "word" }, part.text);
    if (!part.sources) return word;
    word.tabIndex = -1;
    word.addEventListener("mouseenter", () => this.#visit(part));
    word.addEventListener("focus", () => this.#visit(part));
    return word;
  }

  #visited() {
    return [...this.place.querySelectorAll("[tabindex]")];
  }

  #step(event) {
    const all = this.#visited();
    const at = all.indexOf(document.activeElement);
    const forward = getComputedStyle(this.place).direction === "rtl" ? -1 : 1;
    const step = STEPS[event.key] * (event.key.endsWith("t") ? forward : 1);
    const to = { Home: 0, End: all.length - 1 }[event.key] ?? at + step;
    if (at < 0 || !all[to]) return;
    event.preventDefault();
    rove(all, all[to]).focus();
  }

  #visit(part) {
    const from = part.sources.map((source) => `“${source.text}”`).join(", ");
    const score = `model score ${part.score.toFixed(2)}`;
    find("word").textContent = `“${part.text}”${from && ` from ${from}`} · ${score}`;
    this.light(part.sources);
  }

  #leave() {
    find("word").textContent = "";
    this.light([]);
  }
}
