// Only the languages that are there; swapping only where there is a model for the way back.

import { find, options } from "./dom.js";

const names = new Intl.DisplayNames("en", { type: "language" });

export class Languages {
  // `changed` is told, and whether the texts are to change places.
  constructor(changed) {
    this.models = [];
    this.from = find("from");
    this.to = find("to");
    this.from.addEventListener("change", () => this.#offer(this.to.value) || changed(false));
    this.to.addEventListener("change", () => this.#offer(this.to.value) || changed(false));
    find("swap").addEventListener("click", () => {
      const [source, target] = [this.to.value, this.from.value];
      this.from.value = source;
      this.#offer(target);
      changed(true);
    });
  }

  set(models) {
    this.models = models;
    options(this.from, entries(models.map((model) => model.source)), this.from.value);
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

  #offer(target) {
    const targets = this.models.filter((model) => model.source === this.from.value);
    options(this.to, entries(targets.map((model) => model.target)), target);
    const back = { source: this.to.value, target: this.from.value };
    find("swap").disabled = !this.#model(back);
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
