// The attention view: thumbnails of all heads of a layer, and a table of weights for one head.

import { post } from "./api.js";
import { find, make, moveTabStop, save, setOptions } from "./dom.js";
import { ErrorMessage } from "./error_message.js";
import { colorScheme, formatWeight, thumbnail, weightColors } from "./heatmap.js";
import { svg } from "./svg.js";

const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
const COLUMNS = { Home: 0, End: Infinity };

export class AttentionView {
  constructor() {
    this.head = 0;
    this.sentences = [];
    this.errorMessage = new ErrorMessage(find("attention-error"), find("kind"));
    find("attention").addEventListener("toggle", () => this.#load());
    for (const id of ["sentence", "kind"]) find(id).addEventListener("change", () => this.#load());
    find("layer").addEventListener("change", () => this.#load(Number(find("layer").value)));
    find("download-svg").addEventListener("click", () => this.#download());
    find("map").addEventListener("keydown", (event) => this.#handleKey(event));
    colorScheme.addEventListener("change", () => this.response && this.#draw());
  }

  // Sets the sentences with their translations, and their languages.
  set(sentences, languages) {
    this.sentences = sentences;
    this.languages = languages;
    const labels = sentences.map(({ text }, index) => [String(index), shorten(text)]);
    setOptions(find("sentence"), labels);
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
    const body = { ...sentence, ...this.languages, kind: find("kind").value, layer };
    this.errorMessage.clear();
    try {
      const response = await post("attention", body, request.signal);
      if (request !== this.request) return;
      this.response = response;
      this.#draw();
    } catch (error) {
      if (request !== this.request || error.name === "AbortError") return;
      this.#clear();
      this.errorMessage.show(error, () => this.#load(layer));
    }
  }

  // Removes the weights of the previous request, which do not match the selection.
  #clear() {
    this.response = undefined;
    for (const id of ["heads", "map", "cell"]) find(id).replaceChildren();
  }

  #draw() {
    const { layer, layers, weights } = this.response;
    const numbers = Array.from({ length: layers }, (_, index) => String(index + 1));
    setOptions(find("layer"), numbers.map((number) => [number, number]), String(layer));
    this.head = Math.min(this.head, weights.length - 1);
    find("heads").replaceChildren(...weights.map((head, index) => this.#headButton(head, index)));
    this.#drawTable();
  }

  #headButton(weights, head) {
    const select = () => {
      this.head = head;
      [...find("heads").children].forEach((button, index) =>
        button.setAttribute("aria-pressed", String(index === head)),
      );
      this.#drawTable();
    };
    const properties = { type: "button", onclick: select, "aria-pressed": String(head === this.head) };
    return make("button", properties, thumbnail(weights), `Head ${head + 1}`);
  }

  #drawTable() {
    const { rows, columns, weights } = this.response;
    const headers = columns.map((column) => make("th", { scope: "col" }, label(column)));
    const body = weights[this.head].map((row, y) =>
      make("tr", {}, make("th", { scope: "row" }, label(rows[y])), ...row.map((weight, x) => this.#cell(weight, y, x))),
    );
    const table = make(
      "table",
      { role: "grid", "aria-label": this.#title() },
      make("thead", {}, make("tr", {}, make("td"), ...headers)),
      make("tbody", {}, ...body),
    );
    find("map").replaceChildren(table);
    find("cell").textContent = "";
    moveTabStop(this.#cells().flat(), this.#cells()[0][0]);
  }

  #cell(weight, y, x) {
    const { rows, columns } = this.response;
    const cell = make("td", { tabIndex: -1 }, formatWeight(weight));
    const { background, text } = weightColors(weight);
    cell.style.setProperty("background", background);
    cell.style.setProperty("color", text);
    const describe = () => {
      find("cell").textContent = `“${label(rows[y])}” attends to “${label(columns[x])}”: ${weight.toFixed(3)}`;
    };
    cell.addEventListener("focus", describe);
    cell.addEventListener("mouseenter", describe);
    return cell;
  }

  #cells() {
    return [...find("map").querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")]);
  }

  #handleKey(event) {
    const cells = this.#cells();
    const y = cells.findIndex((row) => row.includes(document.activeElement));
    if (y < 0) return;
    const x = cells[y].indexOf(document.activeElement);
    const [down, right] = MOVES[event.key] ?? [0, 0];
    const column = Math.min(COLUMNS[event.key] ?? x + right, cells[y].length - 1);
    const cell = cells[y + down]?.[column];
    if (!cell || (!MOVES[event.key] && !(event.key in COLUMNS))) return;
    event.preventDefault();
    moveTabStop(cells.flat(), cell).focus();
  }

  #title() {
    const { kind, layer } = this.response;
    return `${kind} attention, layer ${layer}, head ${this.head + 1}`;
  }

  #download() {
    if (!this.response) return;
    const { kind, layer, rows, columns, weights } = this.response;
    const picture = svg({
      title: this.#title(),
      rows: rows.map(label),
      columns: columns.map(label),
      weights: weights[this.head],
    });
    save(`attention-${kind}-${layer}-${this.head + 1}.svg`, "image/svg+xml", picture);
  }
}

// Returns a token without the character that stands for the space before it.
const label = (token) => token.replace(/^▁/, "") || "␣";

const shorten = (text) => (text.length > 60 ? `${text.slice(0, 57)}…` : text);
