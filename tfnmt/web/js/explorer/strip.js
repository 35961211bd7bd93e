// The sentence and its translation, above all views. Source tokens are shaded by the attention that the
// selected step pays to them.

import { weightStyle } from "./color.js";
import { inRow, make, roving } from "./dom.js";
import { mean } from "./tensor.js";
import { percent, tokenLabel } from "./text.js";

export function strip({ source, target, tensors, state, act }) {
  const { cross } = tensors;
  const weights = mean(cross.at(cross.shape[0] - 1).parts()).at(state.step).data;
  const sources = source.map(({ piece }, index) =>
    chip(tokenLabel(piece), {
      className: `chip source ${state.hidden.has(index) ? "hidden-token" : ""}`,
      isSelected: index === state.position,
      key: `source-${index}`,
      style: weightStyle(weights[index], "cross"),
      title: `Attention of the selected step: ${percent(weights[index])}`,
      onclick: () => act.set({ position: index }),
    }),
  );
  const targets = target.map(({ id, piece }, step) => {
    const probability = Math.exp(tensors.log_probs.at(step).data[id]);
    const button = chip(tokenLabel(piece), {
      className: `chip target ${step < state.prefix.length ? "forced" : ""}`,
      isSelected: step === state.step,
      key: `target-${step}`,
      title: `Probability ${percent(probability)}`,
      onclick: () => act.select(step),
    });
    button.append(make("span", { className: "level", style: { "--size": probability } }));
    return button;
  });
  return [row("Source", sources, state.position), row("Translation", targets, state.step)];
}

function row(name, chips, current) {
  const label = make("span", { className: "quiet" }, name);
  const group = { className: "chips", role: "group", "aria-label": `${name} tokens`, "data-scroll": name };
  return make("div", { className: "strip-row" }, label, roving(make("div", group, ...chips), chips, current, inRow));
}

function chip(text, { className, isSelected, key, style = {}, title, onclick }) {
  return make(
    "button",
    {
      type: "button",
      className,
      style,
      title,
      onclick,
      "aria-pressed": String(isSelected),
      "data-key": key,
    },
    text,
  );
}
