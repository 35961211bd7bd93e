// How numbers and tokens are written.

const SPACE = "▁"; // stands for the space before a token in the vocabulary

// Returns a token with a visible mark for the space before it.
export const tokenLabel = (piece) => piece.replaceAll(SPACE, "␣");

// Returns a token without its space, for a picture that has little room.
export const shortLabel = (piece) => piece.replace(SPACE, "") || "␣";

export function percent(probability) {
  if (probability >= 0.9995) return "100 %";
  if (probability >= 0.1) return `${(100 * probability).toFixed(1)} %`;
  if (probability >= 0.0001) return `${(100 * probability).toFixed(2)} %`;
  return "< 0.01 %";
}

// Returns a weight between 0 and 1 with two decimals and no leading zero.
export const weightText = (weight) => weight.toFixed(2).replace(/^0/, "");

export const count = (number, singular) => `${number} ${singular}${number === 1 ? "" : "s"}`;
