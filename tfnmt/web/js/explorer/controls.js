// The controls of a view. They stay in the page while the view is drawn again, so that a slider can be
// dragged.

import { make } from "./dom.js";

const SIDES = [
  ["source", "Source"],
  ["target", "Translation"],
];

const RANGES = {
  temperature: { label: "Temperature", min: 0.2, max: 3, step: 0.1 },
  beamSize: { label: "Beam size", min: 1, max: 8, step: 1 },
  alpha: { label: "Length penalty", min: 0, max: 2, step: 0.1 },
};

// Returns the controls with these names.
export const controls = (names, state, act) =>
  names.map((name) => (name === "side" ? sides(state, act) : range(name, state, act)));

function range(name, state, act) {
  const { label, min, max, step } = RANGES[name];
  const shown = make("output", {}, String(state[name]));
  const input = make("input", { type: "range", min, max, step, value: state[name], "data-key": name });
  input.addEventListener("input", () => {
    shown.textContent = input.value;
    act.tune({ [name]: Number(input.value) });
  });
  return make("label", { className: "range" }, make("span", {}, `${label} `, shown), input);
}

function sides(state, act) {
  const options = SIDES.map(([value, label]) =>
    make(
      "label",
      {},
      make("input", {
        type: "radio",
        name: "side",
        value,
        checked: value === state.side,
        onchange: () => act.set({ side: value }),
      }),
      make("span", {}, label),
    ),
  );
  return make("fieldset", { className: "segments" }, make("legend", { className: "visually-hidden" }, "Side"), ...options);
}
