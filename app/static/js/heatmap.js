// Weights as colors.

const RAMPS = {
  light: [[255, 255, 255], [24, 52, 140]],
  dark: [[28, 30, 36], [178, 196, 255]],
};

export const colorScheme = matchMedia("(prefers-color-scheme: dark)");

// Returns the background color of a weight between 0 and 1, and a readable text color.
export function weightColors(weight, scheme = colorScheme.matches ? "dark" : "light") {
  const [low, high] = RAMPS[scheme];
  const background = low.map((value, channel) => Math.round(value + weight * (high[channel] - value)));
  // Black or white has a contrast of at least 4.58 on any background.
  const text = luminance(background) > 0.179 ? "#000000" : "#ffffff";
  return { background: `rgb(${background.join(" ")})`, text };
}

// Relative luminance as defined by WCAG 2.
function luminance(color) {
  const [red, green, blue] = color.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export const formatWeight = (weight) => weight.toFixed(2).replace(/^0/, "");

// Returns the average of the weights of all heads.
export const average = (heads) =>
  heads[0].map((row, y) => row.map((_, x) => heads.reduce((sum, head) => sum + head[y][x], 0) / heads.length));

// Draws one pixel per weight.
export function thumbnail(weights) {
  const canvas = document.createElement("canvas");
  canvas.width = weights[0].length;
  canvas.height = weights.length;
  const context = canvas.getContext("2d");
  weights.forEach((row, y) =>
    row.forEach((weight, x) => {
      context.fillStyle = weightColors(weight).background;
      context.fillRect(x, y, 1, 1);
    }),
  );
  return canvas;
}
