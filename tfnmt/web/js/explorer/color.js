// Weights and values as colors. Canvases need them as numbers, so they are not in the style sheet.

const RAMPS = {
  source: { light: [[255, 255, 255], [23, 55, 148]], dark: [[28, 30, 36], [170, 192, 255]] },
  target: { light: [[255, 255, 255], [146, 58, 6]], dark: [[28, 30, 36], [255, 189, 138]] },
  cross: { light: [[255, 255, 255], [98, 34, 138]], dark: [[28, 30, 36], [221, 178, 255]] },
};

export const colorScheme = matchMedia("(prefers-color-scheme: dark)");

let scheme;
const readScheme = () => (scheme = colorScheme.matches ? "dark" : "light"); // too slow for each pixel
readScheme();
colorScheme.addEventListener("change", readScheme);

// Returns the color of a weight between 0 and 1 as red, green and blue.
export function weightColor(weight, name) {
  const [low, high] = RAMPS[name][scheme];
  const share = Math.min(1, Math.max(0, weight));
  return low.map((value, channel) => Math.round(value + share * (high[channel] - value)));
}

// Returns the color of a value between -1 and 1: orange if negative, blue if positive.
export const signedColor = (value) => weightColor(Math.sqrt(Math.abs(value)), value < 0 ? "target" : "source");

// Returns the background color of a weight between 0 and 1, and a readable text color.
export function weightColors(weight, name) {
  const background = weightColor(weight, name);
  // Black or white has a contrast of at least 4.58 on any background.
  return { background: `rgb(${background.join(" ")})`, color: luminance(background) > 0.179 ? "#000000" : "#ffffff" };
}

// Relative luminance as defined by WCAG 2.
function luminance(color) {
  const [red, green, blue] = color.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
