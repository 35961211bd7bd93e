// Splits a text into sentences.

// A sentence ends with these characters and closing quotes, before white space or without it in
// scripts that use none.
const END = /(?:[.!?…]+["'”’»)\]]*(?=\s)|[。！？｡]+["'”’»」』)\]]*)\s*/gu;

const ABBREVIATIONS = new Set(
  (
    "mr mrs ms dr prof st vs e.g i.e etc jr sr no fig vol p pp al inc ltd co approx dept est " + // en
    "bzw ca ggf z.b d.h u.a usw evtl nr hr fr str vgl abb bd sog inkl max min mio mrd " + // de
    "m mme mlle mm cf env av apr p.ex chap éd " + // fr
    "sra srta d dña ud uds pág núm aprox ee.uu" // es
  ).split(" "),
);

// Returns the sentences of each line without surrounding white space: { text, start, end }.
export function splitSentences(text) {
  return [...text.matchAll(/[^\n\r\v\f\u0085\u2028\u2029]+/gu)].flatMap(({ 0: line, index }) =>
    ends(line)
      .map((end, i, all) => strip(line, all[i - 1] ?? 0, end, index))
      .filter((sentence) => sentence.text),
  );
}

function ends(line) {
  const found = [...line.matchAll(END)]
    .filter((match) => isEnd(line.slice(0, match.index + 1), line.slice(match.index + match[0].length)))
    .map((match) => match.index + match[0].length);
  return [...found.filter((end) => end < line.length), line.length];
}

// Returns whether a sentence ends here: not after an abbreviation, an initial or a number such as
// "3.", and not before a small letter.
function isEnd(before, after) {
  if (/^["'“‘«([¿¡]*\p{Ll}/u.test(after)) return false;
  const [, word] = before.match(/([\p{L}\p{N}.]+)\.$/u) ?? [];
  return word === undefined || !(ABBREVIATIONS.has(word.toLowerCase()) || /^(\p{L}|\p{N}{1,2})$/u.test(word));
}

function strip(line, start, end, offset) {
  const part = line.slice(start, end);
  const text = part.trim();
  const begin = offset + start + part.indexOf(text);
  return { text, start: begin, end: begin + text.length };
}
