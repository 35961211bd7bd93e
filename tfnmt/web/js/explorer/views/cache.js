// Why keys and values are cached: earlier positions never change, so each step computes one position.

import { make } from "../dom.js";
import { largestDifference } from "../tensor.js";
import { shortLabel, tokenLabel } from "../text.js";
import { grid } from "./masks.js";

export function cache({ targetIn, tensors, state, inspectPrefix }) {
  const { step } = state;
  const labels = targetIn.slice(0, step + 1).map(({ piece }) => shortLabel(piece));
  const steps = targetIn.length;
  const proof = make("p", { role: "status" }, "Computing …");
  if (step) prove(proof, step, tensors, inspectPrefix);
  else proof.textContent = "Select a later step of the translation.";
  return [
    make(
      "div",
      { className: "columns" },
      make(
        "figure",
        {},
        make("figcaption", {}, `Masked self-attention at step ${step + 1}`),
        make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Cache" }, grid(labels, labels, kindAt(step), "target")),
        make(
          "ul",
          { className: "legend" },
          make("li", {}, make("span", { className: "swatch new" }), `computed now: query, key and value of “${tokenLabel(targetIn[step].piece)}”`),
          make("li", {}, make("span", { className: "swatch cached" }), "keys and values read from the cache"),
          make("li", {}, make("span", { className: "swatch past" }), "computed in earlier steps, not needed again"),
        ),
      ),
      make(
        "section",
        {},
        make("h3", {}, "The same numbers with fewer and with more tokens"),
        proof,
        make("h3", {}, "The work it saves"),
        make(
          "p",
          {},
          `This translation has ${steps} steps. Without a cache, step t runs the decoder on t positions: `,
          make("strong", {}, `${(steps * (steps + 1)) / 2}`),
          " positions in all. With a cache, each step runs it on one: ",
          make("strong", {}, `${steps}`),
          ".",
        ),
        make("p", {}, "Keys and values of cross-attention depend on the source only. They are computed once for all steps."),
      ),
    ),
  ];
}

const kindAt = (step) => (y, x) => {
  if (x > y) return false;
  if (y < step) return "past";
  return x < step ? "cached" : "new";
};

// Compares the attention of the first positions with that of a shorter translation.
async function prove(line, step, tensors, inspectPrefix) {
  const shorter = await inspectPrefix(step);
  const [layers, heads] = tensors.decoder.shape;
  let most = 0;
  for (let layer = 0; layer < layers; layer += 1)
    for (let head = 0; head < heads; head += 1)
      for (let row = 0; row < step; row += 1) {
        const [one, other] = [tensors, shorter].map(({ decoder }) => decoder.at(layer, head, row).data);
        most = Math.max(most, largestDifference(Array.from(other), Array.from(one)));
      }
  line.textContent =
    `The model ran again on the first ${step} of the ${tensors.decoder.shape[2]} tokens. In all ${layers * heads} heads, the ` +
    `attention of these tokens differs by at most ${most < 5e-8 ? "0" : most.toExponential(1)}. ` +
    "The mask hides later tokens, so nothing before them changes.";
}
