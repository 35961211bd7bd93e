// The language menus. They offer only languages of a model, and swapping only if the opposite
// direction has a model.

import { find, setOptions } from "./dom.js";

const names = new Intl.DisplayNames("en", { type: "language" });

export class Languages {
  // `onChange` receives whether the languages were swapped.
  constructor(onChange) {
    this.models = [];
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
    this.models = models;
    setOptions(this.from, entries(models.map((model) => model.source)), this.from.value);
    this.#offer(this.to.value);
  }

  get pair() {
    return { source: this.from.value, target: this.to.value };
  }

  get model() {
    return this.#model(this.pair);
  }

  #model({ source, target }) {
    return this.models.find((model) => model.source === source && model.target === target);
  }

  // Offers the target languages of the source language; keeps `target` selected if possible.
  #offer(target) {
    const models = this.models.filter((model) => model.source === this.from.value);
    setOptions(this.to, entries(models.map((model) => model.target)), target);
    const opposite = { source: this.to.value, target: this.from.value };
    find("swap").disabled = !this.#model(opposite);
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
