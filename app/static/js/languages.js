// The language menus. They offer only directions of a model, and swapping only if a model has the
// opposite direction.

import { find, setOptions } from "./dom.js";

const names = new Intl.DisplayNames("en", { type: "language" });

export class Languages {
  // `onChange` receives whether the languages were swapped.
  constructor(onChange) {
    this.directions = []; // {source, target, model}
    this.from = find("from");
    this.to = find("to");
    this.from.addEventListener("change", () => this.#offer(this.to.value) || onChange(false));
    this.to.addEventListener("change", () => this.#offer(this.to.value) || onChange(false));
    find("swap").addEventListener("click", () => {
      const [source, target] = [this.to.value, this.from.value];
      this.from.value = source;
      this.#offer(target);
      onChange(true);
    });
  }

  set(models) {
    this.directions = models.flatMap((model) =>
      (model.directions ?? [model]).map(({ source, target }) => ({ source, target, model })),
    );
    const query = new URLSearchParams(location.search);
    const source = this.from.value || query.get("source");
    setOptions(this.from, entries(this.directions.map(({ source }) => source)), source);
    this.#offer(this.to.value || query.get("target"));
  }

  // Selects a pair, if a model has it.
  select(pair) {
    if (!this.#model(pair)) return;
    this.from.value = pair.source;
    this.#offer(pair.target);
  }

  // The source language, and the names of the languages that it can be translated into.
  get offer() {
    const names = [...this.to.options].map(({ textContent }) => textContent);
    return { source: this.from.value, sourceName: this.from.selectedOptions[0]?.textContent, targetNames: names };
  }

  get pair() {
    return { source: this.from.value, target: this.to.value };
  }

  get model() {
    return this.#model(this.pair);
  }

  #model({ source, target }) {
    return this.directions.find((each) => each.source === source && each.target === target)?.model;
  }

  // Offers the target languages of the source language; keeps `target` selected if possible.
  #offer(target) {
    const directions = this.directions.filter(({ source }) => source === this.from.value);
    setOptions(this.to, entries(directions.map((direction) => direction.target)), target);
    const opposite = { source: this.to.value, target: this.from.value };
    find("swap").disabled = !this.#model(opposite);
    if (this.model) this.#showInAddress();
  }

  // A link to the page includes the languages.
  #showInAddress() {
    const url = new URL(location.href);
    for (const [name, code] of Object.entries(this.pair)) url.searchParams.set(name, code);
    history.replaceState(null, "", url);
  }
}

const entries = (codes) => [...new Set(codes)].map((code) => [code, name(code)]);

function name(code) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}
