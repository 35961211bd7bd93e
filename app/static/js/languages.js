// The language menus. They offer only directions of a model, and swapping only if a model has the
// opposite direction. If the server detects languages, the source may be detected.

import { find, setOptions } from "./dom.js";

const AUTO = "auto";

const names = new Intl.DisplayNames("en", { type: "language" });

export class Languages {
  // `onChange` receives whether the languages were swapped.
  constructor(onChange) {
    this.directions = []; // {source, target, model}
    this.from = find("from");
    this.to = find("to");
    this.detected = undefined; // the detected language of the current text
    for (const menu of [this.from, this.to]) {
      menu.addEventListener("change", () => {
        this.detect(undefined);
        this.#offer(this.to.value);
        onChange(false);
      });
    }
    find("swap").addEventListener("click", () => {
      const { source, target } = this.resolved;
      this.detect(undefined);
      this.from.value = target;
      this.#offer(source);
      onChange(true);
    });
  }

  // `detection` is whether the server detects languages.
  set(models, detection) {
    this.directions = models.flatMap((model) =>
      (model.directions ?? [model]).map(({ source, target }) => ({ source, target, model })),
    );
    const query = new URLSearchParams(location.search);
    const source = this.from.value || query.get("source") || this.directions[0]?.source;
    const sources = entries(this.directions.map((direction) => direction.source));
    const auto = detection && sources.length > 1 ? [[AUTO, "Detect language"]] : [];
    setOptions(this.from, [...auto, ...sources], source);
    if (this.from.value === AUTO && source !== AUTO) this.from.value = this.directions[0].source;
    this.#offer(this.to.value || query.get("target"));
  }

  // Selects a pair, if a model has it.
  select(pair) {
    if (!this.modelOf(pair)) return;
    this.detect(undefined);
    this.from.value = pair.source;
    this.#offer(pair.target);
  }

  // Shows the detected language. Returns whether it has changed.
  detect(code) {
    if (code === this.detected) return false;
    this.detected = code;
    const hint = code === this.to.value ? " Choose another target language." : "";
    find("detected").textContent = code ? `Detected language: ${nameOf(code)}.${hint}` : "";
    this.#allowSwap();
    return true;
  }

  // The source languages of the selected directions, and the names of the target languages.
  get offer() {
    const { source, target } = this.pair;
    if (source !== AUTO) return { sources: [source], targetNames: [...this.to.options].map((each) => each.text) };
    const directions = this.directions.filter((direction) => direction.target === target);
    return { sources: [...new Set(directions.map((each) => each.source))], targetNames: [nameOf(target)] };
  }

  // The selected languages, as in requests.
  get pair() {
    return { source: this.from.value, target: this.to.value };
  }

  // The languages of the current text.
  get resolved() {
    return { ...this.pair, ...(this.detected && { source: this.detected }) };
  }

  get model() {
    return this.modelOf(this.resolved) ?? this.directions.find(({ target }) => target === this.to.value)?.model;
  }

  modelOf({ source, target }) {
    return this.directions.find((each) => each.source === source && each.target === target)?.model;
  }

  // Offers the target languages of the source language; keeps `target` selected if possible.
  #offer(target) {
    const directions = this.directions.filter(({ source }) => [source, AUTO].includes(this.from.value));
    setOptions(this.to, entries(directions.map((direction) => direction.target)), target);
    this.#allowSwap();
    if (this.model) this.#showInAddress();
  }

  #allowSwap() {
    const { source, target } = this.resolved;
    find("swap").disabled = !this.modelOf({ source: target, target: source });
  }

  // A link to the page includes the languages.
  #showInAddress() {
    const url = new URL(location.href);
    for (const [name, code] of Object.entries(this.pair)) url.searchParams.set(name, code);
    history.replaceState(null, "", url);
  }
}

const entries = (codes) => [...new Set(codes)].map((code) => [code, nameOf(code)]);

export function nameOf(code) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}
