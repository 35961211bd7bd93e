// Converts a response of /align from tokens to words.

import { overlap, unitOffsets, words } from "./text.js";

const LOW_SCORE = 0.3; // words with a lower score are marked
const MIN_SHARE = 0.5; // minimum weight of a highlighted source word, as a share of the highest weight

// Returns the words of a translation, each with its word score and the positions of its source words.
export function alignWords(source, translation, pairs, languages) {
  const sourceOffset = unitOffsets(source);
  const targetOffset = unitOffsets(translation);
  const sourceWords = words(source, languages.source).filter((word) => word.isWord);
  const sentences = pairs.map((pair) => ({
    attention: pair.attention,
    source: pair.source.map((token) => ({ start: sourceOffset(token.start), end: sourceOffset(token.end) })),
    target: pair.target.map((token) => ({
      start: targetOffset(token.start),
      end: targetOffset(token.end),
      score: Math.exp(token.log_prob),
    })),
  }));
  return words(translation, languages.target).map((word) => {
    if (!word.isWord) return word;
    const match = sentences
      .map((sentence) => ({ sentence, rows: rowsOf(sentence, word) }))
      .find(({ rows }) => rows.length);
    if (!match) return word;
    const { sentence, rows } = match;
    const score = Math.min(...rows.map((row) => sentence.target[row].score));
    return {
      ...word,
      score,
      doubtful: score < LOW_SCORE,
      sources: strongest(sentence, rows, sourceWords),
    };
  });
}

const rowsOf = (sentence, word) =>
  sentence.target.flatMap((token, row) => (overlap(token, word) ? [row] : []));

function strongest(sentence, rows, sourceWords) {
  const weighted = sourceWords
    .map((word) => ({ ...word, weight: weightOf(sentence, rows, word) }))
    .filter((word) => word.weight > 0);
  const highest = Math.max(...weighted.map((word) => word.weight));
  return weighted.filter((word) => word.weight >= MIN_SHARE * highest);
}

function weightOf(sentence, rows, word) {
  let weight = 0;
  sentence.source.forEach((token, column) => {
    if (overlap(token, word)) for (const row of rows) weight += sentence.attention[row][column];
  });
  return weight;
}

// Returns the length of the longest sentence in tokens, including EOS.
export const longestSentence = (pairs) => Math.max(0, ...pairs.map((pair) => pair.source.length));

// Returns the texts of the sentences and of their translations.
export function sentenceTexts(source, translation, pairs) {
  return pairs.map((pair) => ({
    text: extent(source, pair.source),
    translation: extent(translation, pair.target),
  }));
}

function extent(text, tokens) {
  const offset = unitOffsets(text);
  return text.slice(offset(tokens[0].start), offset(tokens.at(-1).end));
}
