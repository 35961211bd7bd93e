// Attention of one head: a picture of every head to choose from, arcs, and a matrix.

import { weightColor, weightStyle } from "../color.js";
import { draw, inGrid, make, pixels, roving } from "../dom.js";
import { mean } from "../tensor.js";
import { shortLabel, weightText } from "../text.js";

const AVERAGE = "average";

// The tokens that attend, those that they attend to, and the color of each kind of attention.
const KINDS = {
  encoder: { rows: "source", columns: "source", color: "source" },
  decoder: { rows: "targetIn", columns: "targetIn", color: "target" },
  cross: { rows: "targetIn", columns: "source", color: "cross" },
};

const NAMES = { source: "source", targetIn: "translation so far" };

export const encoderAttention = (scene) => attention(scene, "encoder");
export const decoderAttention = (scene) => attention(scene, "decoder");
export const crossAttention = (scene) => attention(scene, "cross");

function attention(scene, kind) {
  const { tensors, state } = scene;
  const weights = tensors[kind];
  const { layer, head } = selectedHead(state.heads[kind], weights.shape);
  const picture = {
    kind,
    color: KINDS[kind].color,
    rows: scene[KINDS[kind].rows].map(({ piece }) => shortLabel(piece)),
    columns: scene[KINDS[kind].columns].map(({ piece }) => shortLabel(piece)),
    weights: headWeights(weights, layer, head).rows(),
    selected: kind === "encoder" ? state.position : state.step,
    select: (index) => (kind === "encoder" ? scene.act.set({ position: index }) : scene.act.select(index)),
  };
  return [
    headChooser(scene, kind, { layer, head }),
    make("h3", {}, `Layer ${layer + 1}, ${head === AVERAGE ? "average of all heads" : `head ${head + 1}`}`),
    make("p", { className: "quiet" }, `Below and in rows, the tokens that attend: ${NAMES[KINDS[kind].rows]}. Above and in columns, those that they attend to: ${NAMES[KINDS[kind].columns]}.`),
    arcs(picture),
    matrix(picture),
  ];
}

function selectedHead({ layer, head }, [layers, heads]) {
  return { layer: Math.min(layer, layers - 1), head: head === AVERAGE ? head : Math.min(head, heads - 1) };
}

const headWeights = (weights, layer, head) =>
  head === AVERAGE ? mean(weights.at(layer).parts()) : weights.at(layer, head);

// --- All heads ------------------------------------------------------------------------------------

function headChooser({ tensors, act }, kind, selected) {
  const [layers, heads] = tensors[kind].shape;
  const choices = [...Array(heads).keys(), AVERAGE];
  const buttons = [];
  const rows = Array.from({ length: layers }, (_, layer) => {
    const row = choices.map((head) => {
      const name = head === AVERAGE ? AVERAGE : `head ${head + 1}`;
      const isSelected = layer === selected.layer && head === selected.head;
      const picture = pixels(
        headWeights(tensors[kind], layer, head).rows(),
        (weight) => weightColor(weight, KINDS[kind].color),
        "",
      );
      picture.setAttribute("aria-hidden", "true");
      return make(
        "button",
        {
          type: "button",
          onclick: () => act.set({ heads: { [kind]: { layer, head } } }),
          "aria-pressed": String(isSelected),
          "aria-label": `Layer ${layer + 1}, ${name}`,
          "data-key": `${kind}-${layer}-${head}`,
        },
        picture,
        make("span", {}, name),
      );
    });
    buttons.push(...row);
    return make("div", { className: "layer", role: "group" }, make("span", { className: "quiet" }, `Layer ${layer + 1}`), ...row);
  });
  const current = selected.layer * choices.length + choices.indexOf(selected.head);
  const group = make("div", { className: "heads", role: "group", "aria-label": "Heads of all layers" }, ...rows);
  return roving(group, buttons, current, inGrid(choices.length));
}

// --- Arcs -----------------------------------------------------------------------------------------

const LETTER = 8.2; // approximate width of a letter
const GAP = 18; // smallest space between two tokens
const NARROWEST = 640;
const TOP = 22; // baseline of the upper row
const BOTTOM = 178; // baseline of the lower row
const SMALLEST = 0.04; // lighter weights have no arc

// The tokens that attend are below, those that they attend to are above.
function arcs({ color, rows, columns, weights, selected, select }) {
  const width = Math.max(NARROWEST, widthOf(columns), widthOf(rows));
  const [above, below] = [columns, rows].map((tokens) => centers(tokens, width));
  const picture = draw("svg", {
    width,
    height: BOTTOM + 14,
    viewBox: `0 0 ${width} ${BOTTOM + 14}`,
    class: `arcs ${color}`,
    role: "img",
    "aria-label": "Arcs from each token, below, to the tokens it attends to, above. The matrix has the same weights.",
  });
  picture.append(...columns.map((column, x) => label(column, above[x], TOP)));
  rows.forEach((row, y) => {
    const lines = weights[y].flatMap((weight, x) => (weight < SMALLEST ? [] : [arc(above[x], below[y], weight)]));
    const group = draw("g", { class: y === selected ? "selected" : "" }, ...lines, label(row, below[y], BOTTOM));
    group.addEventListener("click", () => select(y));
    picture.append(group);
  });
  return make(
    "div",
    { className: "scroll arcs-frame", tabIndex: 0, role: "region", "aria-label": "Arcs", "data-scroll": "arcs" },
    picture,
  );
}

const sizeOf = ({ length }) => Math.max(2, length) * LETTER;

const widthOf = (tokens) => tokens.reduce((width, token) => width + sizeOf(token) + GAP, 0);

// Returns the centers of tokens that are spread over a width.
function centers(tokens, width) {
  const gap = GAP + (width - widthOf(tokens)) / tokens.length;
  let end = -gap / 2;
  return tokens.map((token) => {
    end += gap + sizeOf(token);
    return end - sizeOf(token) / 2;
  });
}

const label = (text, x, y) => draw("text", { x, y, "text-anchor": "middle" }, text);

function arc(above, below, weight) {
  const middle = (TOP + BOTTOM) / 2;
  const d = `M ${below} ${BOTTOM - 16} C ${below} ${middle}, ${above} ${middle}, ${above} ${TOP + 8}`;
  return draw("path", { d, "stroke-opacity": Math.max(0.12, weight), "stroke-width": 1 + 4 * weight });
}

// --- Matrix ---------------------------------------------------------------------------------------

// A grid of weights; each row is a token that attends. The arrow keys move in it.
function matrix({ kind, color, rows, columns, weights, selected }) {
  const caption = make("p", { className: "caption", role: "status" });
  const isMasked = (y, x) => kind === "decoder" && x > y;
  const cells = weights.flatMap((row, y) =>
    row.map((weight, x) =>
      isMasked(y, x)
        ? make("td", { className: "masked", "aria-label": "masked" })
        : make("td", { style: weightStyle(weight, color) }, weightText(weight)),
    ),
  );
  const describe = ({ target }) => {
    const index = cells.indexOf(target);
    if (index < 0) return;
    const [y, x] = [Math.floor(index / columns.length), index % columns.length];
    const from = `“${rows[y]}” (${y})`;
    caption.textContent = isMasked(y, x)
      ? `${from} cannot attend to position ${x}: it comes later.`
      : `${from} attends to “${columns[x]}” (${x}) with weight ${weights[y][x].toFixed(3)}.`;
  };
  const head = columns.map((column) => make("th", { scope: "col" }, make("span", {}, column)));
  const body = rows.map((row, y) =>
    make(
      "tr",
      { className: y === selected ? "selected" : "" },
      make("th", { scope: "row" }, row),
      ...cells.slice(y * columns.length, (y + 1) * columns.length),
    ),
  );
  const table = make(
    "table",
    { className: "matrix", role: "grid", "aria-label": "Attention weights: rows attend to columns" },
    make("thead", {}, make("tr", {}, make("td", {}), ...head)),
    make("tbody", {}, ...body),
  );
  table.addEventListener("focusin", describe);
  table.addEventListener("mouseover", describe);
  roving(table, cells, 0, inGrid(columns.length));
  const frame = { className: "scroll", role: "region", tabIndex: 0, "aria-label": "Matrix", "data-scroll": "matrix" };
  return make("div", {}, make("div", frame, table), caption);
}
