// A heatmap as a self-contained SVG file.

import { formatWeight, weightColors } from "./heatmap.js";

const CELL = 28;
const LETTER = 7; // approximate width of a letter
const NAMESPACE = "http://www.w3.org/2000/svg";

// `axes` are the names of the rows and of the columns.
export function svg({ title, axes, rows, columns, weights }) {
  const left = 16 + LETTER * Math.max(...rows.map((row) => row.length));
  const top = 58 + LETTER * Math.max(...columns.map((column) => column.length));
  const width = left + CELL * columns.length + 8;
  const height = top + CELL * rows.length + 8;
  const root = node("svg", { xmlns: NAMESPACE, width, height, viewBox: `0 0 ${width} ${height}` });
  root.append(
    node("title", {}, title),
    node("rect", { width, height, fill: "#ffffff" }),
    node("style", {}, "text { font: 12px system-ui, sans-serif; } .value { font-size: 10px; }"),
    node("text", { x: 8, y: 18 }, title),
    node("text", { x: 8, y: 36 }, `rows: ${axes[0]}, columns: ${axes[1]}`),
    ...columns.map((column, x) => header(column, left + CELL * (x + 0.6), top - 8)),
    ...rows.map((row, y) =>
      node("text", { x: left - 8, y: top + CELL * (y + 0.6), "text-anchor": "end" }, row),
    ),
    ...weights.flatMap((row, y) =>
      row.flatMap((weight, x) => cell(weight, left + CELL * x, top + CELL * y)),
    ),
  );
  return new XMLSerializer().serializeToString(root);
}

const header = (text, x, y) => node("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, text);

function cell(weight, x, y) {
  const { background, text } = weightColors(weight, "light");
  const position = { x: x + CELL / 2, y: y + CELL / 2 + 4, "text-anchor": "middle" };
  return [
    node("rect", { x, y, width: CELL, height: CELL, fill: background }),
    node("text", { ...position, class: "value", fill: text }, formatWeight(weight)),
  ];
}

export function node(tag, attributes, text = "") {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}
