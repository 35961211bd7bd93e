// Weights and values as colors. Canvases need them as numbers, so they are not in the style sheet.

const RAMPS = {
  source: { light: [[255, 255, 255], [23, 55, 148]], dark: [[28, 30, 36], [170, 192, 255]] },
  target: { light: [[255, 255, 255], [146, 58, 6]], dark: [[28, 30, 36], [255, 189, 138]] },
  cross: { light: [[255, 255, 255], [98, 34, 138]], dark: [[28, 30, 36], [221, 178, 255]] },
};

export const colorScheme = globalThis.matchMedia?.("(prefers-color-scheme: dark)");

// Returns the background color of a weight between 0 and 1, and a readable text color.
export function weightColors(weight, name, scheme = colorScheme?.matches ? "dark" : "light") {
  const background = mix(RAMPS[name][scheme], Math.min(1, Math.max(0, weight)));
  // Black or white has a contrast of at least 4.58 on any background.
  return { background: css(background), text: luminance(background) > 0.179 ? "#000000" : "#ffffff" };
}

// Returns the color of a value between -1 and 1: orange if negative, blue if positive.
export function signedColor(value) {
  const { background } = weightColors(Math.sqrt(Math.abs(value)), value < 0 ? "target" : "source");
  return background;
}

const css = (color) => `rgb(${color.join(" ")})`;

const mix = ([low, high], weight) => low.map((value, channel) => Math.round(value + weight * (high[channel] - value)));

// Relative luminance as defined by WCAG 2.
function luminance(color) {
  const [red, green, blue] = color.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
