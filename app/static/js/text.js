// Words and positions. The API counts code points, JavaScript counts UTF-16 units.

export const length = (text) => [...text].length;

// Returns a function from positions in code points to positions in UTF-16 units.
export function unitOffsets(text) {
  const offsets = [0];
  for (const character of text) offsets.push(offsets.at(-1) + character.length);
  return (codePoints) => offsets[Math.min(codePoints, offsets.length - 1)];
}

// Returns the words of a text, and the parts between them, in order: {text, start, end, isWord}.
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
    return new Intl.Segmenter("en", { granularity: "word" }); // the browser does not know the code
  }
}

export const overlap = (one, other) => one.start < other.end && other.start < one.end;
