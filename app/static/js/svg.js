// A heat map as an SVG file that stands alone.

import { shade, shown } from "./heat.js";

const CELL = 28;
const LETTER = 7; // about the width of one
const SPACE = "http://www.w3.org/2000/svg";

export function svg({ title, rows, columns, weights }) {
  const left = 16 + LETTER * Math.max(...rows.map((row) => row.length));
  const top = 40 + LETTER * Math.max(...columns.map((column) => column.length));
  const width = left + CELL * columns.length + 8;
  const height = top + CELL * rows.length + 8;
  const root = node("svg", { xmlns: SPACE, width, height, viewBox: `0 0 ${width} ${height}` });
  root.append(
    node("title", {}, title),
    node("rect", { width, height, fill: "#ffffff" }),
    node("style", {}, "text { font: 12px system-ui, sans-serif; } .value { font-size: 10px; }"),
    node("text", { x: 8, y: 18 }, title),
    ...columns.map((column, x) => head(column, left + CELL * (x + 0.6), top - 8)),
    ...rows.map((row, y) =>
      node("text", { x: left - 8, y: top + CELL * (y + 0.6), "text-anchor": "end" }, row),
    ),
    ...weights.flatMap((row, y) =>
      row.flatMap((weight, x) => cell(weight, left + CELL * x, top + CELL * y)),
    ),
  );
  return new XMLSerializer().serializeToString(root);
}

const head = (text, x, y) => node("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, text);

function cell(weight, x, y) {
  const { paper, ink } = shade(weight, "light");
  const place = { x: x + CELL / 2, y: y + CELL / 2 + 4, "text-anchor": "middle" };
  return [
    node("rect", { x, y, width: CELL, height: CELL, fill: paper }),
    node("text", { ...place, class: "value", fill: ink }, shown(weight)),
  ];
}

function node(tag, attributes, text = "") {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}
