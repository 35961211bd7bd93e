// The translation: its words can be visited by pointer or arrow keys.

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export class Output {
  // `onVisit` receives the visited word, or null. `onChoose` receives a word that was clicked.
  constructor(element, onVisit, onChoose) {
    Object.assign(this, { element, onVisit, onChoose });
    this.words = new Map(); // by element
    for (const type of ["pointerover", "focusin"])
      element.addEventListener(type, ({ target }) => this.onVisit(this.words.get(target) ?? null));
    for (const type of ["pointerleave", "focusout"]) element.addEventListener(type, () => this.onVisit(null));
    element.addEventListener("click", ({ target }) => this.choose(target));
    element.addEventListener("keydown", (event) => this.handleKey(event));
  }

  // Shows a translation. `parts` are words and the text between them; a part with `isWord` can be
  // visited.
  show(parts) {
    this.words.clear();
    this.element.replaceChildren(...parts.map((part) => (part.isWord ? this.wordElement(part) : part.text)));
    const first = this.element.querySelector(".word");
    if (first) first.tabIndex = 0;
  }

  wordElement(part) {
    const element = document.createElement("span");
    Object.assign(element, { className: "word", textContent: part.text, tabIndex: -1 });
    element.setAttribute("role", "button");
    this.words.set(element, part);
    return element;
  }

  choose(element) {
    const word = this.words.get(element);
    if (!word) return;
    this.stopAt(element);
    this.onChoose(word);
  }

  handleKey(event) {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(event.target);
    } else if (event.key in STEPS) {
      const all = [...this.words.keys()];
      const next = all[all.indexOf(event.target) + STEPS[event.key]];
      if (!next) return;
      event.preventDefault();
      this.stopAt(next);
      next.focus();
    }
  }

  // Makes one word the tab stop.
  stopAt(element) {
    for (const each of this.words.keys()) each.tabIndex = each === element ? 0 : -1;
  }
}
