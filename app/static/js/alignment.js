// What an answer of /align says about each word of a translation.

import { meets, units, words } from "./text.js";

const DOUBTFUL = 0.3; // the model score below which a word is marked
const SHARE = 0.5; // of the strongest source word's weight, for another to light up too

// The words of a translation, each with its model score and the places of its source words.
export function aligned(source, translation, pairs, languages) {
  const here = units(source);
  const there = units(translation);
  const sources = words(source, languages.source).filter((word) => word.isWord);
  const sentences = pairs.map((pair) => ({
    attention: pair.attention,
    source: pair.source.map((piece) => ({ start: here(piece.start), end: here(piece.end) })),
    target: pair.target.map((piece) => ({
      start: there(piece.start),
      end: there(piece.end),
      score: Math.exp(piece.log_prob),
    })),
  }));
  return words(translation, languages.target).map((word) => {
    if (!word.isWord) return word;
    const found = sentences
      .map((sentence) => ({ sentence, rows: rowsOf(sentence, word) }))
      .find(({ rows }) => rows.length);
    if (!found) return word;
    const { sentence, rows } = found;
    const score = Math.min(...rows.map((row) => sentence.target[row].score));
    return {
      ...word,
      score,
      doubtful: score < DOUBTFUL,
      sources: strongest(sentence, rows, sources),
    };
  });
}

const rowsOf = (sentence, word) =>
  sentence.target.flatMap((piece, row) => (meets(piece, word) ? [row] : []));

function strongest(sentence, rows, sources) {
  const weighted = sources
    .map((word) => ({ ...word, weight: weightOf(sentence, rows, word) }))
    .filter((word) => word.weight > 0);
  const most = Math.max(...weighted.map((word) => word.weight));
  return weighted.filter((word) => word.weight >= SHARE * most);
}

function weightOf(sentence, rows, word) {
  let weight = 0;
  sentence.source.forEach((piece, column) => {
    if (meets(piece, word)) for (const row of rows) weight += sentence.attention[row][column];
  });
  return weight;
}

// The longest sentence in pieces, end mark counted.
export const longest = (pairs) => Math.max(0, ...pairs.map((pair) => pair.source.length));

// The texts of the sentences and of their translations.
export function sentences(source, translation, pairs) {
  return pairs.map((pair) => ({
    text: extent(source, pair.source),
    translation: extent(translation, pair.target),
  }));
}

function extent(text, pieces) {
  const at = units(text);
  return text.slice(at(pieces[0].start), at(pieces.at(-1).end));
}
