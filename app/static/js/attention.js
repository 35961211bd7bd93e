// The attention view: thumbnails of all heads of a layer, and a table of weights for one head.

import { post } from "./api.js";
import { arcs } from "./arcs.js";
import { find, make, moveTabStop, save, setOptions } from "./dom.js";
import { ErrorMessage } from "./error_message.js";
import { average, colorScheme, formatWeight, thumbnail, weightColors } from "./heatmap.js";
import { svg } from "./svg.js";

const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
const COLUMNS = { Home: 0, End: Infinity };
const AXES = {
  cross: ["translation", "text"],
  encoder: ["text", "text"],
  decoder: ["translation", "translation"],
};

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
      this.heads = heads(response.weights);
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
    for (const id of ["heads", "arcs", "map", "cell"]) find(id).replaceChildren();
  }

  #draw() {
    const { layer, layers } = this.response;
    const numbers = Array.from({ length: layers }, (_, index) => String(index + 1));
    setOptions(find("layer"), numbers.map((number) => [number, number]), String(layer));
    this.head = Math.min(this.head, this.heads.length - 1);
    find("heads").replaceChildren(...this.heads.map((head, index) => this.#headButton(head, index)));
    this.#drawHead();
  }

  #headButton({ name, weights }, head) {
    const select = () => {
      this.head = head;
      [...find("heads").children].forEach((button, index) =>
        button.setAttribute("aria-pressed", String(index === head)),
      );
      this.#drawHead();
    };
    const properties = { type: "button", onclick: select, "aria-pressed": String(head === this.head) };
    return make("button", properties, thumbnail(weights), capitalize(name));
  }

  // The tokens and weights of the selected head.
  get #picture() {
    const { kind, rows, columns } = this.response;
    const { weights } = this.heads[this.head];
    return { title: this.#title(), axes: AXES[kind], rows: rows.map(label), columns: columns.map(label), weights };
  }

  #drawHead() {
    const picture = this.#picture;
    find("arcs").replaceChildren(arcs(picture));
    this.#drawTable(picture);
  }

  #drawTable({ title, axes, rows, columns, weights }) {
    const headers = columns.map((column) => make("th", { scope: "col" }, column));
    const body = weights.map((row, y) =>
      make("tr", {}, make("th", { scope: "row" }, rows[y]), ...row.map((weight, x) => this.#cell(weight, y, x))),
    );
    const rowAxis = { scope: "rowgroup", rowSpan: rows.length, className: "axis" };
    const columnAxis = { scope: "colgroup", colSpan: columns.length, className: "axis" };
    body[0].prepend(make("th", rowAxis, `${capitalize(axes[0])} (attends)`));
    const table = make(
      "table",
      { role: "grid", "aria-label": title },
      make(
        "thead",
        {},
        make("tr", {}, make("td", { colSpan: 2 }), make("th", columnAxis, `${capitalize(axes[1])} (attended to)`)),
        make("tr", {}, make("td", { colSpan: 2 }), ...headers),
      ),
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
    return `${kind} attention, layer ${layer}, ${this.heads[this.head].name}`;
  }

  #download() {
    if (!this.response) return;
    const { kind, layer } = this.response;
    const name = this.heads[this.head].name.replaceAll(" ", "-");
    save(`attention-${kind}-${layer}-${name}.svg`, svg(this.#picture), "image/svg+xml");
  }
}

// Returns the heads with their names, after their average.
function heads(weights) {
  const named = weights.map((head, index) => ({ name: `head ${index + 1}`, weights: head }));
  return weights.length > 1 ? [{ name: "average", weights: average(weights) }, ...named] : named;
}

const capitalize = (text) => text[0].toUpperCase() + text.slice(1);

// Returns a token without the character that stands for the space before it.
const label = (token) => token.replace(/^▁/, "") || "␣";

const shorten = (text) => (text.length > 60 ? `${text.slice(0, 57)}…` : text);
