// Words, and places in a text. The API counts code points, JavaScript counts UTF-16 units.

export const length = (text) => [...text].length;

// From a number of code points to one of units.
export function units(text) {
  const places = [0];
  for (const character of text) places.push(places.at(-1) + character.length);
  return (codePoints) => places[Math.min(codePoints, places.length - 1)];
}

// The text in parts, in order: {text, start, end, isWord}.
export function words(text, language) {
  const parts = [];
  for (const { segment, index, isWordLike } of segmenter(language).segment(text)) {
    parts.push({ text: segment, start: index, end: index + segment.length, isWord: isWordLike });
  }
  return parts;
}

function segmenter(language) {
  try {
    return new Intl.Segmenter(language, { granularity: "word" });
  } catch {
    return new Intl.Segmenter("en", { granularity: "word" }); // no such language here
  }
}

export const meets = (one, other) => one.start < other.end && other.start < one.end;
