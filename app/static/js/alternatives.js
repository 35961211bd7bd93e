// The n-best list. The user selects an entry with the arrow keys, Home, End or a click.

import { find, make } from "./dom.js";
import { changedWords, words } from "./text.js";

export class Alternatives {
  // `onSelect` receives the selected translation.
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.list = find("choices");
    this.list.addEventListener("keydown", (event) => this.#handleKey(event));
    this.clear();
  }

  clear() {
    this.show([], "en");
  }

  // Disables the list, because its text has changed.
  disable() {
    this.list.setAttribute("aria-disabled", "true");
  }

  // Shows translations in descending order of score.
  show(translations, language) {
    this.list.removeAttribute("aria-disabled");
    this.translations = translations;
    find("alternatives").hidden = translations.length < 2;
    this.list.replaceChildren(
      ...translations.map((translation, index) => this.#option(translation, index, language)),
    );
    this.#select(0);
  }

  #option({ text, score }, index, language) {
    const parts = words(text, language);
    const changed = changedWords(parts, words(this.translations[0].text, language));
    const content = parts.map((part) =>
      changed.has(part) ? make("span", { className: "changed" }, part.text) : part.text,
    );
    return make(
      "li",
      { id: `choice-${index}`, role: "option", onclick: () => this.#choose(index) },
      make("span", { className: "choice", lang: language, translate: false, dir: "auto" }, ...content),
      make("span", { className: "quiet number" }, `ranking score ${score.toFixed(2)}`),
    );
  }

  #handleKey(event) {
    const last = this.translations.length - 1;
    const index = {
      ArrowDown: Math.min(this.selected + 1, last),
      ArrowUp: Math.max(this.selected - 1, 0),
      Home: 0,
      End: last,
    }[event.key];
    if (index === undefined) return;
    event.preventDefault();
    this.#choose(index);
  }

  #choose(index) {
    if (index === this.selected || this.list.ariaDisabled) return;
    this.#select(index);
    this.onSelect(this.translations[index]);
  }

  #select(selected) {
    this.selected = selected;
    [...this.list.children].forEach((option, index) =>
      option.setAttribute("aria-selected", String(index === selected)),
    );
    if (this.list.children[selected]) {
      this.list.setAttribute("aria-activedescendant", `choice-${selected}`);
    } else {
      this.list.removeAttribute("aria-activedescendant");
    }
  }
}
