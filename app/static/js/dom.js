// Finding and creating elements. Text is always inserted as text, never as markup.

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

export function setOptions(select, entries, selected) {
  select.replaceChildren(...entries.map(([value, label]) => make("option", { value }, label)));
  if (entries.some(([value]) => value === selected)) select.value = selected;
}

// Makes one element of a group the tab stop (roving tabindex) and returns it.
export function moveTabStop(elements, target) {
  for (const element of elements) element.tabIndex = element === target ? 0 : -1;
  return target;
}

// Focuses an element, unless the user works in another part of the page.
export function focusUnlessBusy(element, section) {
  const { activeElement, body } = document;
  if (activeElement === body || section.contains(activeElement)) element.focus();
}

export function save(name, content, type = "application/octet-stream") {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
