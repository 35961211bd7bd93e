// Words of a text, and the source words of each word of a translation.

const MIN_SHARE = 0.5; // minimum weight of a source word, as a share of the highest weight

// Returns the words of a text and the parts between them, in order: { text, start, end, isWord }.
export function words(text, language) {
  return [...segmenter(language).segment(text)].map(({ segment, index, isWordLike }) => ({
    text: segment,
    start: index,
    end: index + segment.length,
    isWord: isWordLike,
  }));
}

function segmenter(language) {
  try {
    return new Intl.Segmenter(language, { granularity: "word" });
  } catch {
    return new Intl.Segmenter("en", { granularity: "word" }); // the browser does not know the code
  }
}

// Returns the source words of a span of a translation: those with the most attention.
//
// alignment: the result of `Model.align`. span: { start, end } in the translation.
export function sourceWords(alignment, span, sourceParts) {
  const rows = indices(alignment.target.spans, span);
  const weighted = sourceParts
    .filter(({ isWord }) => isWord)
    .map((word) => ({ ...word, weight: weightOf(alignment, rows, word) }))
    .filter(({ weight }) => weight > 0);
  const highest = Math.max(...weighted.map(({ weight }) => weight));
  return weighted.filter(({ weight }) => weight >= MIN_SHARE * highest);
}

function weightOf({ source, attention }, rows, word) {
  const columns = indices(source.spans, word);
  return rows.reduce((sum, row) => columns.reduce((total, column) => total + attention[row][column], sum), 0);
}

const indices = (spans, { start, end }) =>
  spans.flatMap(([from, to], index) => (from < end && start < to ? [index] : []));
