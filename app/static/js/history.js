// Translations of this visit, kept in the browser until they are cleared or a day old.

import { find, make } from "./dom.js";
import { load, store } from "./storage.js";

const KEY = "history";
const MAX_ENTRIES = 50;
const MAX_AGE = 24 * 3600 * 1000; // ms

export class TranslationHistory {
  // `onChoose` receives the chosen entry: {text, translation, source, target, time}.
  constructor(onChoose) {
    this.onChoose = onChoose;
    const entries = load("localStorage", KEY);
    const oldest = Date.now() - MAX_AGE;
    this.#set(Array.isArray(entries) ? entries.filter(({ time }) => time > oldest) : []);
    find("history-clear").addEventListener("click", () => {
      this.#set([]);
      find("history").querySelector("summary").focus();
    });
  }

  // Adds a translation. It replaces the previous entry if the user has continued that text.
  add(entry) {
    const [latest, ...earlier] = this.entries;
    const others = latest && continues(latest, entry) ? earlier : this.entries;
    this.#set([{ ...entry, time: Date.now() }, ...others.filter((other) => !same(other, entry))]);
  }

  #set(entries) {
    this.entries = entries.slice(0, MAX_ENTRIES);
    // If the storage is full, the older half is dropped.
    if (!store("localStorage", KEY, this.entries) && this.entries.length > 1) {
      this.#set(this.entries.slice(0, this.entries.length / 2));
      return;
    }
    find("history").hidden = !this.entries.length;
    find("history-entries").replaceChildren(...this.entries.map((entry) => this.#item(entry)));
  }

  #item(entry) {
    const part = (text, lang) => make("span", { className: "part", lang, dir: "auto", translate: false }, text);
    const content = [part(entry.text, entry.source), part(entry.translation, entry.target)];
    return make("li", {}, make("button", { type: "button", onclick: () => this.onChoose(entry) }, ...content));
  }
}

const sameLanguages = (one, other) => one.source === other.source && one.target === other.target;

const same = (one, other) => sameLanguages(one, other) && one.text === other.text;

const continues = (one, other) =>
  sameLanguages(one, other) && (other.text.startsWith(one.text) || one.text.startsWith(other.text));
