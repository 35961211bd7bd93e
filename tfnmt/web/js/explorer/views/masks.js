// The padding mask, with source tokens to hide, and the causal mask.

import { draw, make } from "../dom.js";
import { shortLabel, tokenLabel } from "../text.js";

const CELL = 22;
const LETTER = 7.5; // approximate width of a letter

export function masks({ source, targetIn, state, original, act }) {
  const isHidden = source.map((_, index) => state.hidden.has(index));
  const labels = (tokens) => tokens.map(({ piece }) => shortLabel(piece));
  return [
    make("h3", {}, "Hide source tokens"),
    make(
      "p",
      {},
      "A hidden token gets the id of padding. The padding mask then excludes it from every attention, and the model ",
      "translates without it.",
    ),
    make(
      "div",
      { className: "chips", role: "group", "aria-label": "Hide source tokens" },
      ...source.slice(0, -1).map(({ piece }, index) =>
        make(
          "button",
          {
            type: "button",
            className: "chip source",
            onclick: () => act.toggleHidden(index),
            "aria-pressed": String(isHidden[index]),
            "aria-label": `Hide ${tokenLabel(piece)}`,
            "data-key": `hide-${index}`,
          },
          tokenLabel(piece),
        ),
      ),
    ),
    ...(state.hidden.size ? [make("p", {}, "With all tokens, the translation was: ", make("strong", {}, original))] : []),
    make(
      "div",
      { className: "columns" },
      figure("Padding mask: the same in each row", grid(labels(source), labels(source), (_, x) => !isHidden[x], "source")),
      figure("Causal mask: no later position", grid(labels(targetIn), labels(targetIn), (y, x) => x <= y, "target")),
    ),
  ];
}

const figure = (title, picture) =>
  make(
    "figure",
    {},
    make("figcaption", {}, title),
    make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": title }, picture),
  );

// Draws a mask; `attends(row, column)` is its value.
export function grid(rows, columns, attends, color) {
  const left = 10 + LETTER * Math.max(...rows.map(({ length }) => length));
  const top = 10 + LETTER * Math.max(...columns.map(({ length }) => length));
  const [width, height] = [left + CELL * columns.length + 2, top + CELL * rows.length + 2];
  const picture = draw("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    class: `mask ${color}`,
    role: "img",
    "aria-label": "Filled: the row may attend to the column. Crossed: it may not.",
  });
  columns.forEach((column, x) => {
    const center = left + CELL * (x + 0.68);
    picture.append(draw("text", { x: center, y: top - 6, transform: `rotate(-90 ${center} ${top - 6})` }, column));
  });
  rows.forEach((row, y) => {
    picture.append(draw("text", { x: left - 6, y: top + CELL * (y + 0.7), "text-anchor": "end" }, row));
  });
  picture.append(...cells({ rows, columns, attends, left, top }));
  return picture;
}

// Draws all cells of the same kind as one path, because a mask may have thousands.
function cells({ rows, columns, attends, left, top }) {
  const paths = {};
  rows.forEach((_, y) =>
    columns.forEach((_, x) => {
      const kind = { true: "open", false: "closed" }[attends(y, x)] ?? attends(y, x);
      const shape = kind === "closed" ? cross : square;
      paths[kind] = (paths[kind] ?? "") + shape(left + CELL * x, top + CELL * y);
    }),
  );
  return Object.entries(paths).map(([kind, d]) => draw("path", { d, class: kind }));
}

const square = (x, y) => `M${x + 3} ${y + 3}h${CELL - 6}v${CELL - 6}h${6 - CELL}z`;

const cross = (x, y) => `M${x + 8} ${y + 8}l${CELL - 16} ${CELL - 16}m0 ${16 - CELL}l${16 - CELL} ${CELL - 16}`;
