// Attention weights as lines between two rows of tokens. The heavier the weight, the darker the line.

import { node } from "./svg.js";

const LETTER = 8; // approximate width of a letter
const GAP = 14; // space between two tokens
const TOP = 20; // baseline of the upper row
const BOTTOM = 150; // baseline of the lower row
const MIN_WEIGHT = 0.05; // lighter lines are left out

// `rows` are the tokens that attend (below), `columns` those that are attended to (above). `axes` are
// the names of both.
export function arcs({ title, axes, rows, columns, weights }) {
  const start = GAP + LETTER * Math.max(...axes.map(({ length }) => length));
  const above = centers(columns, start);
  const below = centers(rows, start);
  const width = Math.max(above.width, below.width);
  const root = node("svg", { width, height: BOTTOM + 10, viewBox: `0 0 ${width} ${BOTTOM + 10}`, role: "img" });
  root.setAttribute("aria-label", `${title}: lines from the tokens that attend, below, to the others, above`);
  root.append(
    node("text", { y: TOP, class: "axis" }, axes[1]),
    node("text", { y: BOTTOM, class: "axis" }, axes[0]),
    ...columns.map((column, x) => token(column, above.at[x], TOP)),
    ...rows.map((row, y) => {
      const group = node("g", {});
      const lines = weights[y].flatMap((weight, x) =>
        weight < MIN_WEIGHT ? [] : [line(above.at[x], below.at[y], weight)],
      );
      group.append(token(row, below.at[y], BOTTOM), ...lines);
      return group;
    }),
  );
  return root;
}

function centers(tokens, start) {
  let width = start + GAP;
  const at = tokens.map(({ length }) => {
    const center = width + (LETTER * length) / 2;
    width += LETTER * length + GAP;
    return center;
  });
  return { at, width };
}

const token = (text, x, y) => node("text", { x, y, "text-anchor": "middle" }, text);

function line(above, below, weight) {
  const middle = (TOP + BOTTOM) / 2;
  const d = `M ${below} ${BOTTOM - 14} C ${below} ${middle}, ${above} ${middle}, ${above} ${TOP + 6}`;
  return node("path", { d, "stroke-opacity": weight, "stroke-width": 1 + 2 * weight });
}
