// Tokens of both sides, and the training example that they make.

import { make } from "../dom.js";
import { percent, tokenLabel } from "../text.js";

export function tokens({ source, target, targetIn, tensors, state, act }) {
  const losses = target.map(({ id }, step) => -tensors.log_probs.at(step).data[id]);
  const mean = losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
  return [
    make("h3", {}, `Source: ${source.length} tokens`),
    make("ol", { className: "ids source", "aria-label": "Source tokens with their ids" }, ...source.map(tokenWithId)),
    make("h3", {}, "Decoder input and correct next tokens"),
    make(
      "div",
      { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Training example", "data-scroll": "example" },
      make(
        "table",
        { className: "example" },
        make("thead", {}, make("tr", {}, ...HEADERS.map((header) => make("th", { scope: "col" }, header)))),
        make("tbody", {}, ...target.map((token, step) => exampleRow(step, targetIn[step], token, losses[step], state, act))),
      ),
    ),
    make(
      "p",
      {},
      "Mean loss: ",
      make("strong", {}, mean.toFixed(3)),
      ` per token. Its exponential is the perplexity, ${Math.exp(mean).toFixed(2)}. On average, the model is as unsure `,
      "as if it chose between that many equally likely tokens. Training makes the loss small for all of its examples.",
    ),
    translationForm(act),
  ];
}

const HEADERS = ["Step", "Decoder reads", "Correct next token", "Probability", "Loss = −ln p"];

const tokenWithId = ({ id, piece }) =>
  make("li", {}, make("span", {}, tokenLabel(piece)), make("small", {}, String(id)));

function exampleRow(step, before, token, loss, state, act) {
  const select = make(
    "button",
    { type: "button", className: "link", onclick: () => act.select(step), "data-key": `step-${step}` },
    String(step + 1),
  );
  return make(
    "tr",
    { className: step === state.step ? "selected" : "" },
    make("th", { scope: "row" }, select),
    make("td", { className: "target" }, `… ${tokenLabel(before.piece)}`),
    make("td", { className: "target" }, tokenLabel(token.piece)),
    make("td", { className: "number" }, percent(Math.exp(-loss))),
    make(
      "td",
      { className: "number" },
      make("span", { className: "bar target", style: { "--size": Math.min(1, loss / 5) } }),
      loss.toFixed(3),
    ),
  );
}

// A form for another translation. The model then force-decodes it.
function translationForm(act) {
  const field = make("input", { name: "translation", autocomplete: "off", "data-key": "translation" });
  const submit = (event) => {
    event.preventDefault();
    if (field.value.trim()) act.useTranslation(field.value);
  };
  return make(
    "form",
    { className: "inline", onsubmit: submit },
    make("label", {}, "Score your own translation", field),
    make("button", {}, "Use it"),
  );
}
