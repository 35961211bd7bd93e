// The distribution of the next token at each step, with the ten most probable tokens.

import { inRow, make, roving } from "../dom.js";
import { entropy, rank, temper, topK } from "../probabilities.js";
import { percent, shortLabel, tokenLabel } from "../text.js";

const SHOWN = 10;

export function output({ target, tensors, state, pieceOf, act }) {
  const { step, temperature } = state;
  const logProbs = temper(tensors.log_probs.at(step).data, temperature);
  const chosen = target[step].id;
  return [
    steps({ target, tensors, state, act }),
    make("h3", {}, `Step ${step + 1}: the ten most probable tokens`),
    topTokens({ logProbs, chosen, pieceOf, choose: (id) => act.force(step, id) }),
    make(
      "p",
      { className: "quiet" },
      `“${tokenLabel(target[step].piece)}” has rank ${rank(logProbs, chosen)} of ${logProbs.length.toLocaleString("en")} `,
      `and probability ${percent(Math.exp(logProbs[chosen]))}. `,
      `The entropy is ${entropy(logProbs).toFixed(2)} bits. `,
      "Select a token to force it here; the search continues from there.",
    ),
  ];
}

// One column per step, as high as the probability of the token in the translation.
function steps({ target, tensors, state, act }) {
  const buttons = target.map(({ id, piece }, index) => {
    const logProbs = temper(tensors.log_probs.at(index).data, state.temperature);
    const probability = Math.exp(logProbs[id]);
    return make(
      "button",
      {
        type: "button",
        onclick: () => act.select(index),
        "aria-pressed": String(index === state.step),
        "aria-label": `Step ${index + 1}: ${tokenLabel(piece)}, ${percent(probability)}`,
        "data-key": `column-${index}`,
      },
      make("span", { className: "column" }, make("span", { className: "fill", style: { "--size": probability } })),
      make("span", { className: "token" }, shortLabel(piece)),
      make("span", { className: "number quiet" }, percent(probability)),
    );
  });
  const frame = { className: "steps scroll", role: "group", "aria-label": "Steps", "data-scroll": "steps" };
  return roving(make("div", frame, ...buttons), buttons, state.step, inRow);
}

// A list of the most probable tokens, each a button that chooses it.
export function topTokens({ logProbs, chosen, pieceOf, choose }) {
  const ids = topK(logProbs, SHOWN);
  const largest = Math.exp(logProbs[ids[0]]);
  return make(
    "ol",
    { className: "bars top" },
    ...ids.map((id) => {
      const probability = Math.exp(logProbs[id]);
      return make(
        "li",
        {},
        make(
          "button",
          { type: "button", onclick: () => choose(id), "aria-pressed": String(id === chosen), "data-key": `token-${id}` },
          make("span", { className: "name" }, tokenLabel(pieceOf(id))),
          make("span", { className: "track" }, make("span", { className: "bar target", style: { "--size": probability / largest } })),
          make("span", { className: "number" }, percent(probability)),
        ),
      );
    }),
  );
}
