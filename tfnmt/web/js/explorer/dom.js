// Creating elements. Text is always inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Draws one pixel per value of a matrix; `color` maps a value to red, green and blue.
export function pixels(rows, color, label) {
  const [height, width] = [rows.length, rows[0].length];
  const canvas = make("canvas", { width, height, role: "img", "aria-label": label });
  const image = new ImageData(width, height);
  let index = 0;
  for (const row of rows)
    for (const value of row) {
      image.data.set(color(value), index);
      image.data[index + 3] = 255; // opaque
      index += 4;
    }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// Replaces the children of an element. If one of them had the focus, the new child with the same
// `data-key` gets it.
export function replace(element, ...children) {
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = [...element.querySelectorAll("[data-scroll]")].map(({ dataset, scrollLeft, scrollTop }) => [
    dataset.scroll,
    scrollLeft,
    scrollTop,
  ]);
  element.replaceChildren(...children);
  for (const [name, left, top] of scrolled) element.querySelector(`[data-scroll="${name}"]`)?.scrollTo(left, top);
  if (key) element.querySelector(`[data-key="${key}"]`)?.focus({ preventScroll: true });
}

// Scrolls a row of elements so that the pressed one is visible.
export function reveal(row) {
  const pressed = row.querySelector("[aria-pressed=true]");
  if (!pressed) return;
  const [inner, outer] = [pressed, row].map((element) => element.getBoundingClientRect());
  row.scrollLeft += Math.max(0, inner.right - outer.right + 8) - Math.max(0, outer.left - inner.left + 8);
}

// Moves the focus within the elements of a group by the arrow keys; one of them is the tab stop. Buttons
// are also pressed.
export function roving(group, elements, current, move) {
  elements.forEach((element, index) => {
    element.tabIndex = index === current ? 0 : -1;
  });
  group.addEventListener("keydown", (event) => {
    const next = elements[move(elements.indexOf(event.target), event.key)];
    if (!next) return;
    event.preventDefault();
    for (const element of elements) element.tabIndex = element === next ? 0 : -1;
    next.focus();
    next.click();
  });
  return group;
}

// Returns how arrow keys move in a row of elements.
export const inRow = (index, key) => ({ ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0 })[key];

// Returns how arrow keys move in a grid of elements with this many columns.
export const inGrid = (columns) => (index, key) => {
  const column = index % columns;
  if (key === "ArrowRight") return column < columns - 1 ? index + 1 : undefined;
  if (key === "ArrowLeft") return column ? index - 1 : undefined;
  return { ArrowDown: index + columns, ArrowUp: index - columns, Home: index - column, End: index - column + columns - 1 }[key];
};
