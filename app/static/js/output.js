// The translation. Words can be focused or hovered to highlight their source words.

import { find, make, moveTabStop } from "./dom.js";
import { words } from "./text.js";

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export class Output {
  // `onVisit` receives the source words of the visited word.
  constructor(onVisit) {
    this.onVisit = onVisit;
    this.element = find("target");
    this.text = "";
    this.current = true; // whether this is the translation of the current text
    this.element.addEventListener("keydown", (event) => this.#handleKey(event));
    this.element.addEventListener("mouseleave", () => this.#leave());
    this.element.addEventListener("focusout", () => this.#leave());
  }

  // Shows a translation. `parts` are its words, with source words if they are aligned.
  show(text, language, parts = words(text, language)) {
    this.text = text;
    this.current = true;
    this.#setStale(false);
    find("copy").disabled = !text;
    this.element.lang = language;
    this.element.replaceChildren(...parts.map((part) => (part.isWord ? this.#word(part) : part.text)));
    const [first] = this.#alignedWords();
    if (first) moveTabStop(this.#alignedWords(), first);
    // The arrow keys scroll a long text.
    this.element.tabIndex = this.element.scrollHeight > this.element.clientHeight ? 0 : -1;
    this.#leave();
  }

  // Removes the source words, because the text has changed.
  forget() {
    this.current = false;
    find("copy").disabled = true;
    for (const word of this.#alignedWords()) {
      word.removeAttribute("tabindex");
      word.replaceWith(word.cloneNode(true)); // without event listeners
    }
    this.#leave();
  }

  // Shows that no newer translation is on its way, if this one belongs to an earlier text.
  outdate() {
    this.#setStale(!this.current && Boolean(this.text));
  }

  #setStale(stale) {
    this.element.classList.toggle("stale", stale);
    find("stale").textContent = stale ? "This translation belongs to an earlier text." : "";
  }

  set busy(busy) {
    this.element.setAttribute("aria-busy", String(busy));
  }

  #word(part) {
    const word = make("span", { className: part.doubtful ? "word doubtful" : "word" }, part.text);
    if (!part.sources) return word;
    word.tabIndex = -1;
    word.addEventListener("mouseenter", () => this.#visit(part));
    word.addEventListener("focus", () => this.#visit(part));
    return word;
  }

  #alignedWords() {
    return [...this.element.querySelectorAll("[tabindex]")];
  }

  #handleKey(event) {
    const all = this.#alignedWords();
    const index = all.indexOf(document.activeElement);
    const forward = getComputedStyle(this.element).direction === "rtl" ? -1 : 1;
    // Only ArrowRight and ArrowLeft end with "t"; they depend on the direction of the text.
    const step = STEPS[event.key] * (event.key.endsWith("t") ? forward : 1);
    const next = { Home: 0, End: all.length - 1 }[event.key] ?? index + step;
    if (index < 0 || !all[next]) return;
    event.preventDefault();
    moveTabStop(all, all[next]).focus();
  }

  #visit(part) {
    const from = part.sources.map((source) => `“${source.text}”`).join(", ");
    const score = `word score ${part.score.toFixed(2)}`;
    find("word").textContent = `“${part.text}”${from && ` from ${from}`} · ${score}`;
    this.onVisit(part.sources);
  }

  #leave() {
    find("word").textContent = "";
    this.onVisit([]);
  }
}
