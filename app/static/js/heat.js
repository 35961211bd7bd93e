// Weights as colours.

const RAMPS = {
  light: [[255, 255, 255], [24, 52, 140]],
  dark: [[28, 30, 36], [178, 196, 255]],
};

export const scheme = matchMedia("(prefers-color-scheme: dark)");

// The colour of a weight between 0 and 1, and that of ink that can be read on it.
export function shade(weight, name = scheme.matches ? "dark" : "light") {
  const [low, high] = RAMPS[name];
  const paper = low.map((value, channel) => Math.round(value + weight * (high[channel] - value)));
  // Of black and white one has a contrast of 4.58 or more, whatever the paper.
  const ink = luminance(paper) > 0.179 ? "#000000" : "#ffffff";
  return { paper: `rgb(${paper.join(" ")})`, ink };
}

function luminance(colour) {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

// A weight for people.
export const shown = (weight) => weight.toFixed(2).replace(/^0/, "");

// A picture of a pixel a weight.
export function thumbnail(weights) {
  const canvas = document.createElement("canvas");
  canvas.width = weights[0].length;
  canvas.height = weights.length;
  const context = canvas.getContext("2d");
  weights.forEach((row, y) =>
    row.forEach((weight, x) => {
      context.fillStyle = shade(weight).paper;
      context.fillRect(x, y, 1, 1);
    }),
  );
  return canvas;
}
