// The attention view: all heads of a layer small, one large, its weights to be read.

import { ask } from "./api.js";
import { find, make, options, rove, save } from "./dom.js";
import { scheme, shade, shown, thumbnail } from "./heat.js";
import { svg } from "./svg.js";
import { Trouble } from "./trouble.js";

const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
const PLACES = { Home: 0, End: Infinity };

export class AttentionView {
  constructor() {
    this.head = 0;
    this.sentences = [];
    this.trouble = new Trouble(find("attention-error"), find("kind"));
    find("attention").addEventListener("toggle", () => this.#load());
    for (const id of ["sentence", "kind"]) find(id).addEventListener("change", () => this.#load());
    find("layer").addEventListener("change", () => this.#load(Number(find("layer").value)));
    find("download-svg").addEventListener("click", () => this.#download());
    find("map").addEventListener("keydown", (event) => this.#move(event));
    scheme.addEventListener("change", () => this.answer && this.#draw());
  }

  // Sentences with their translations, and the languages that they are in.
  set(sentences, languages) {
    this.sentences = sentences;
    this.languages = languages;
    const labels = sentences.map(({ text }, number) => [String(number), shorten(text)]);
    options(find("sentence"), labels);
    find("sentence-label").hidden = sentences.length < 2;
    find("attention-empty").hidden = sentences.length > 0;
    find("attention-view").hidden = !sentences.length;
    this.#load();
  }

  async #load(layer = null) {
    this.request?.abort();
    const sentence = this.sentences[Number(find("sentence").value)];
    if (!find("attention").open || !sentence) return;
    const request = (this.request = new AbortController());
    const question = { ...sentence, ...this.languages, kind: find("kind").value, layer };
    this.trouble.clear();
    try {
      const answer = await ask("attention", question, request.signal);
      if (request !== this.request) return;
      this.answer = answer;
      this.#draw();
    } catch (error) {
      if (request !== this.request || error.name === "AbortError") return;
      this.#clear();
      this.trouble.show(error, () => this.#load(layer));
    }
  }

  // Nothing of another question may stand under this one.
  #clear() {
    this.answer = undefined;
    for (const id of ["heads", "map", "cell"]) find(id).replaceChildren();
  }

  #draw() {
    const { layer, layers, weights } = this.answer;
    const numbers = Array.from({ length: layers }, (_, index) => String(index + 1));
    options(find("layer"), numbers.map((number) => [number, number]), String(layer));
    this.head = Math.min(this.head, weights.length - 1);
    find("heads").replaceChildren(...weights.map((head, number) => this.#small(head, number)));
    this.#enlarge();
  }

  #small(weights, number) {
    const choose = () => {
      this.head = number;
      [...find("heads").children].forEach((button, index) =>
        button.setAttribute("aria-pressed", String(index === number)),
      );
      this.#enlarge();
    };
    const properties = { type: "button", onclick: choose, "aria-pressed": String(number === this.head) };
    return make("button", properties, thumbnail(weights), `Head ${number + 1}`);
  }

  #enlarge() {
    const { rows, columns, weights } = this.answer;
    const heads = columns.map((column) => make("th", { scope: "col" }, plain(column)));
    const body = weights[this.head].map((row, y) =>
      make("tr", {}, make("th", { scope: "row" }, plain(rows[y])), ...row.map((weight, x) => this.#cell(weight, y, x))),
    );
    const table = make(
      "table",
      { role: "grid", "aria-label": this.#title() },
      make("thead", {}, make("tr", {}, make("td"), ...heads)),
      make("tbody", {}, ...body),
    );
    find("map").replaceChildren(table);
    find("cell").textContent = "";
    rove(this.#cells().flat(), this.#cells()[0][0]);
  }

  #cell(weight, y, x) {
    const { rows, columns } = this.answer;
    const cell = make("td", { tabIndex: -1 }, shown(weight));
    const { paper, ink } = shade(weight);
    cell.style.setProperty("background", paper);
    cell.style.setProperty("color", ink);
    const tell = () => {
      find("cell").textContent = `“${plain(rows[y])}” looks at “${plain(columns[x])}”: ${weight.toFixed(3)}`;
    };
    cell.addEventListener("focus", tell);
    cell.addEventListener("mouseenter", tell);
    return cell;
  }

  #cells() {
    return [...find("map").querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")]);
  }

  #move(event) {
    const cells = this.#cells();
    const y = cells.findIndex((row) => row.includes(document.activeElement));
    if (y < 0) return;
    const x = cells[y].indexOf(document.activeElement);
    const [down, right] = MOVES[event.key] ?? [0, 0];
    const column = Math.min(PLACES[event.key] ?? x + right, cells[y].length - 1);
    const to = cells[y + down]?.[column];
    if (!to || (!MOVES[event.key] && !(event.key in PLACES))) return;
    event.preventDefault();
    rove(cells.flat(), to).focus();
  }

  #title() {
    const { kind, layer } = this.answer;
    return `${kind} attention, layer ${layer}, head ${this.head + 1}`;
  }

  #download() {
    if (!this.answer) return;
    const { kind, layer, rows, columns, weights } = this.answer;
    const picture = svg({
      title: this.#title(),
      rows: rows.map(plain),
      columns: columns.map(plain),
      weights: weights[this.head],
    });
    save(`attention-${kind}-${layer}-${this.head + 1}.svg`, "image/svg+xml", picture);
  }
}

// A piece without the sign for the space before it.
const plain = (piece) => piece.replace(/^▁/, "") || "␣";

const shorten = (text) => (text.length > 60 ? `${text.slice(0, 57)}…` : text);
