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

const MAX_COMPARISONS = 4_000_000; // memory of a few MB

// Returns the words of a text that are not in another text, or not in the same order: those outside
// of their longest common subsequence. Very long texts are not compared.
export function changedWords(parts, others) {
  const mine = parts.filter((part) => part.isWord);
  const theirs = others.filter((part) => part.isWord);
  if (mine.length * theirs.length > MAX_COMPARISONS) return new Set();
  // common[i][j]: length of the longest common subsequence from word i and word j on.
  const common = Array.from({ length: mine.length + 1 }, () => new Uint16Array(theirs.length + 1));
  for (let i = mine.length - 1; i >= 0; i--) {
    for (let j = theirs.length - 1; j >= 0; j--) {
      common[i][j] =
        mine[i].text === theirs[j].text
          ? common[i + 1][j + 1] + 1
          : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const changed = new Set();
  for (let i = 0, j = 0; i < mine.length; ) {
    if (j < theirs.length && mine[i].text === theirs[j].text) [i, j] = [i + 1, j + 1];
    else if (j < theirs.length && common[i][j + 1] >= common[i + 1][j]) j++;
    else changed.add(mine[i++]);
  }
  return changed;
}

export const overlap = (one, other) => one.start < other.end && other.start < one.end;
