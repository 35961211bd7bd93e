// Why this word: the probabilities of a step, and the tokens that it attended to.

import { make } from "../dom.js";
import { topK } from "../probabilities.js";
import { mean } from "../tensor.js";
import { percent, shortLabel, tokenLabel } from "../text.js";

const SHOWN = 5;

export function why({ source, target, targetIn, tensors, state, pieceOf, act }) {
  const { step } = state;
  const token = target[step];
  const logProbs = tensors.log_probs.at(step).data;
  const [best, ...others] = topK(logProbs, SHOWN + 1);
  const rivals = [best, ...others].filter((id) => id !== token.id).slice(0, SHOWN);
  const cross = lastLayer(tensors.cross).at(step).parts();
  const self = lastLayer(tensors.decoder).at(step).parts().slice(0, step + 1);
  const [strongest] = topK(cross, 1);
  return [
    make(
      "p",
      { className: "answer" },
      "The model wrote ",
      make("strong", { className: "target" }, tokenLabel(token.piece)),
      ` with probability ${percent(Math.exp(logProbs[token.id]))}`,
      token.id === best ? ", more than any other token" : `, although ${tokenLabel(pieceOf(best))} was more probable`,
      ". At this step it attended most to ",
      make("strong", { className: "source" }, tokenLabel(source[strongest].piece)),
      ` in the source (${percent(cross[strongest])} of the weight).`,
    ),
    make(
      "div",
      { className: "columns narrow" },
      panel("Source tokens attended to", weightBars(source, cross, "source")),
      panel("Earlier translation attended to", weightBars(targetIn.slice(0, step + 1), self, "target")),
      panel(
        "Other probable tokens",
        make(
          "ol",
          { className: "bars" },
          ...rivals.map((id) => {
            const probability = Math.exp(logProbs[id]);
            return make(
              "li",
              {},
              make(
                "button",
                { type: "button", onclick: () => act.force(step, id), "data-key": `rival-${id}` },
                make("span", { className: "name" }, tokenLabel(pieceOf(id))),
                make("span", { className: "track" }, make("span", { className: "bar target", style: { "--size": probability } })),
                make("span", { className: "number" }, percent(probability)),
              ),
            );
          }),
        ),
      ),
    ),
    make(
      "p",
      { className: "quiet" },
      "Weights are the average over the heads of the last layer. They show which positions the step attended to. They do ",
      "not prove that these tokens decided it, because the encoder has already mixed information between positions.",
    ),
  ];
}

const lastLayer = (weights) => mean(weights.at(weights.shape[0] - 1).parts());

const panel = (title, content) => make("section", {}, make("h3", {}, title), content);

const weightBars = (tokens, weights, color) =>
  make(
    "ol",
    { className: "bars" },
    ...tokens.map(({ piece }, index) =>
      make(
        "li",
        {},
        make("span", { className: "name" }, shortLabel(piece)),
        make("span", { className: "track" }, make("span", { className: `bar ${color}`, style: { "--size": weights[index] } })),
        make("span", { className: "number" }, percent(weights[index])),
      ),
    ),
  );
