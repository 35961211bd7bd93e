// The norm of the residual stream after each sublayer, and of the output of each sublayer.

import { draw, make } from "../dom.js";
import { shortLabel } from "../text.js";

const SUBLAYERS = { encoder: ["attention", "feed-forward"], decoder: ["masked", "cross", "feed-forward"] };
const SIDES = { source: "encoder", target: "decoder" };

const COLUMN = 84; // width of a sublayer
const LEFT = 44;
const TOP = 12;
const HEIGHT = 190;
const FOOT = 46;

export function residual({ source, targetIn, tensors, state }) {
  const stack = SIDES[state.side];
  const tokens = state.side === "source" ? source : targetIn;
  const selected = Math.min(state.side === "source" ? state.position : state.step, tokens.length - 1);
  const norms = tensors[`${stack}_norms`].rows();
  const updates = tensors[`${stack}_updates`].rows().map((row) => row[selected]);
  const names = stateNames(stack, norms.length);
  return [
    make("h3", {}, `Norm of the residual stream in the ${stack}`),
    lines({ names, norms, tokens, selected, color: state.side }),
    make("h3", {}, `Norm of each sublayer’s output at “${shortLabel(tokens[selected].piece)}”`),
    make(
      "ol",
      { className: "bars long-names" },
      ...updates.map((update, index) => {
        const size = update / Math.max(...updates);
        return make(
          "li",
          {},
          make("span", { className: "name" }, names[index + 1].join(" ")),
          make("span", { className: "track" }, make("span", { className: `bar ${state.side}`, style: { "--size": size } })),
          make("span", { className: "number" }, update.toFixed(2)),
        );
      }),
    ),
  ];
}

// Returns the names of the states: [layer, sublayer].
function stateNames(stack, count) {
  const sublayers = SUBLAYERS[stack];
  const names = Array.from({ length: count - 2 }, (_, index) => [
    `Layer ${Math.floor(index / sublayers.length) + 1}`,
    sublayers[index % sublayers.length],
  ]);
  return [["Input", ""], ...names, ["Output", ""]];
}

function lines({ names, norms, tokens, selected, color }) {
  const width = LEFT + COLUMN * names.length;
  const highest = Math.max(...norms.flat()) * 1.08;
  const x = (index) => LEFT + COLUMN * (index + 0.5);
  const y = (norm) => TOP + HEIGHT * (1 - norm / highest);
  const path = (token) => norms.map((row, index) => `${index ? "L" : "M"} ${x(index)} ${y(row[token])}`).join(" ");
  const order = [...tokens.keys()].filter((token) => token !== selected).concat(selected);
  const picture = draw("svg", {
    width,
    height: TOP + HEIGHT + FOOT,
    viewBox: `0 0 ${width} ${TOP + HEIGHT + FOOT}`,
    class: `chart ${color}`,
    role: "img",
    "aria-label": `Norms of “${tokens[selected].piece}”: ${norms.map((row) => row[selected].toFixed(1)).join(", ")}`,
  });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const value = (highest / 1.08) * share;
    picture.append(
      draw("line", { x1: LEFT, x2: width, y1: y(value), y2: y(value), class: "rule" }),
      draw("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end", class: "tick" }, value.toFixed(0)),
    );
  }
  names.forEach(([layer, sublayer], index) => {
    const first = !index || names[index - 1][0] !== layer;
    picture.append(
      draw("text", { x: x(index), y: TOP + HEIGHT + 20, "text-anchor": "middle", class: "tick" }, sublayer || layer),
      ...(first && sublayer ? [draw("text", { x: x(index), y: TOP + HEIGHT + 38, "text-anchor": "middle", class: "group" }, layer)] : []),
    );
  });
  for (const token of order) {
    const isSelected = token === selected;
    const line = draw("path", { d: path(token), class: isSelected ? "line selected" : "line" }, draw("title", {}, tokens[token].piece));
    picture.append(line);
  }
  norms.forEach((row, index) => picture.append(draw("circle", { cx: x(index), cy: y(row[selected]), r: 4 })));
  const frame = { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Norms", "data-scroll": "norms" };
  return make("div", frame, picture);
}
