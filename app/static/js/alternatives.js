// The n-best list: arrows, Home and End choose, so does a click.

import { find, make } from "./dom.js";
import { words } from "./text.js";

export class Alternatives {
  // `choose` is given the translation that was chosen.
  constructor(choose) {
    this.choose = choose;
    this.list = find("choices");
    this.list.addEventListener("keydown", (event) => this.#key(event));
    this.clear();
  }

  clear() {
    this.show([], "en");
  }

  // They belong to a text that has changed since.
  stale() {
    this.list.setAttribute("aria-disabled", "true");
  }

  // The best first.
  show(translations, language) {
    this.list.removeAttribute("aria-disabled");
    this.translations = translations;
    find("alternatives").hidden = translations.length < 2;
    this.list.replaceChildren(
      ...translations.map((translation, number) => this.#option(translation, number, language)),
    );
    this.#select(0);
  }

  #option({ text, score }, number, language) {
    const known = new Set(words(this.translations[0].text, language).map((word) => word.text));
    const shown = words(text, language).map((word) =>
      word.isWord && !known.has(word.text)
        ? make("span", { className: "changed" }, word.text)
        : word.text,
    );
    return make(
      "li",
      { id: `choice-${number}`, role: "option", onclick: () => this.#take(number) },
      make("span", { className: "choice", lang: language, translate: false, dir: "auto" }, ...shown),
      make("span", { className: "quiet number" }, `model score ${score.toFixed(2)}`),
    );
  }

  #key(event) {
    const last = this.translations.length - 1;
    const to = {
      ArrowDown: Math.min(this.selected + 1, last),
      ArrowUp: Math.max(this.selected - 1, 0),
      Home: 0,
      End: last,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#take(to);
  }

  #take(number) {
    if (number === this.selected || this.list.ariaDisabled) return;
    this.#select(number);
    this.choose(this.translations[number]);
  }

  #select(number) {
    this.selected = number;
    [...this.list.children].forEach((option, index) =>
      option.setAttribute("aria-selected", String(index === number)),
    );
    if (this.list.children[number]) {
      this.list.setAttribute("aria-activedescendant", `choice-${number}`);
    } else {
      this.list.removeAttribute("aria-activedescendant");
    }
  }
}
