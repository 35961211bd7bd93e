// Elements, made and found. Text goes in as text, never as markup.

export const find = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, label]) => make("option", { value }, label)));
  if (entries.some(([value]) => value === chosen)) select.value = chosen;
}

// Moves the one tab stop of a group; returns the element that has it now.
export function rove(elements, to) {
  for (const element of elements) element.tabIndex = element === to ? 0 : -1;
  return to;
}

// Brings whoever is nowhere else, or near already, to an element: nobody is led away from typing.
export function lead(to, near) {
  const { activeElement, body } = document;
  if (activeElement === body || near.contains(activeElement)) to.focus();
}

export function save(name, kind, content) {
  const url = URL.createObjectURL(new Blob([content], { type: kind }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
