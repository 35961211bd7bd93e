// The vectors that enter the first layer: embeddings, positions, and their sum.

import { signedColor } from "../color.js";
import { make, pixels } from "../dom.js";
import { add } from "../tensor.js";
import { shortLabel } from "../text.js";

const LARGEST = 3; // values beyond it have the strongest color

export function embeddings({ source, targetIn, tensors, state, act }) {
  const { side } = state;
  const tokens = side === "source" ? source : targetIn;
  const selected = Math.min(state.position, tokens.length - 1);
  const embedded = tensors[`${side}_embeddings`];
  const positions = tensors[`${side}_positions`];
  const width = embedded.shape[1];
  const maps = [
    [`Embedding × √${width}`, embedded],
    ["+ positional encoding", positions],
    ["= input of layer 1", add(embedded, positions)],
  ];
  return [
    make(
      "div",
      { className: "vectors" },
      ...maps.map(([title, tensor]) => vectorMap(title, tensor, tokens, selected)),
    ),
    make(
      "p",
      { className: "quiet" },
      `One row per token, one column per dimension (${width}). `,
      make("span", { className: "key positive" }, "blue"),
      " is positive, ",
      make("span", { className: "key negative" }, "orange"),
      " is negative.",
    ),
    make("h3", {}, `How much position ${selected} resembles the others`),
    similarities(positions, tokens, selected, act),
  ];
}

function vectorMap(title, tensor, tokens, selected) {
  const labels = tokens.map(({ piece }, index) =>
    make("span", { className: index === selected ? "selected" : "" }, shortLabel(piece)),
  );
  const picture = pixels(tensor.rows(), (value) => signedColor(Math.max(-1, Math.min(1, value / LARGEST))), title);
  return make(
    "figure",
    {},
    make("figcaption", {}, title),
    make("div", { className: "vector-map" }, make("div", { className: "labels", "aria-hidden": "true" }, ...labels), picture),
  );
}

// Bars of the dot products of one positional encoding with all of them, relative to its own.
function similarities(positions, tokens, selected, act) {
  const dot = (one, other) => one.reduce((sum, value, i) => sum + value * other[i], 0);
  const own = positions.at(selected).data;
  return make(
    "ol",
    { className: "bars", start: 0 },
    ...tokens.map(({ piece }, index) => {
      const size = dot(own, positions.at(index).data) / dot(own, own);
      const properties = {
        type: "button",
        onclick: () => act.set({ position: index }),
        "data-key": `position-${index}`,
        "aria-pressed": String(index === selected),
      };
      return make(
        "li",
        {},
        make(
          "button",
          properties,
          make("span", { className: "name" }, `${index} ${shortLabel(piece)}`),
          make("span", { className: "track" }, make("span", { className: "bar source", style: { "--size": Math.max(0, size) } })),
          make("span", { className: "number" }, size.toFixed(2)),
        ),
      );
    }),
  );
}
