// Weights and values as colors. Canvases need them as numbers, so they are not in the style sheet.

const RAMPS = {
  source: { light: [[255, 255, 255], [23, 55, 148]], dark: [[28, 30, 36], [170, 192, 255]] },
  target: { light: [[255, 255, 255], [146, 58, 6]], dark: [[28, 30, 36], [255, 189, 138]] },
  cross: { light: [[255, 255, 255], [98, 34, 138]], dark: [[28, 30, 36], [221, 178, 255]] },
};

const LEVELS = 255;

export const colorScheme = matchMedia("(prefers-color-scheme: dark)");

// For each ramp, its colors from the weight 0 to 1. A view draws thousands of them.
let tables;

function fillTables() {
  const scheme = colorScheme.matches ? "dark" : "light";
  tables = Object.fromEntries(Object.entries(RAMPS).map(([name, ramps]) => [name, tableOf(ramps[scheme])]));
}

const tableOf = ([low, high]) =>
  Array.from({ length: LEVELS + 1 }, (_, level) => {
    const rgb = low.map((value, channel) => Math.round(value + (level / LEVELS) * (high[channel] - value)));
    // Black or white has a contrast of at least 4.58 on any background.
    return { rgb, style: { background: `rgb(${rgb.join(" ")})`, color: luminance(rgb) > 0.179 ? "#000000" : "#ffffff" } };
  });

const entryOf = (weight, name) => tables[name][Math.round(LEVELS * Math.min(1, Math.max(0, weight)))];

// Returns the color of a weight between 0 and 1 as red, green and blue.
export const weightColor = (weight, name) => entryOf(weight, name).rgb;

// Returns the style of a weight: its color as background, and a readable text color.
export const weightStyle = (weight, name) => entryOf(weight, name).style;

// Returns the color of a value between -1 and 1: orange if negative, blue if positive.
export const signedColor = (value) => weightColor(Math.sqrt(Math.abs(value)), value < 0 ? "target" : "source");

// Relative luminance as defined by WCAG 2.
function luminance(color) {
  const [red, green, blue] = color.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

fillTables();
colorScheme.addEventListener("change", fillTables);
