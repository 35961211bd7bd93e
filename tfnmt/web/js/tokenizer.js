// Encodes and decodes with a SentencePiece BPE model, with the same ids as SentencePiece.
//
// Offsets and lengths count UTF-16 units, as JavaScript does.

import { readFields, readString } from "./protobuf.js";

export const PAD = 0;
export const EOS = 2;
const UNKNOWN = 3;
const FIRST_LANGUAGE = 4; // the language tokens follow one another

const SPACE = "▁"; // stands for a space in the vocabulary
const TYPES = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 };

export class Tokenizer {
  // Reads the bytes of a SentencePiece model file.
  constructor(bytes) {
    const model = readFields(bytes);
    const [normalizer] = model.get(3).map(readFields);
    this.pieces = model.get(1).map(readPiece);
    this.ids = new Map();
    this.pieces.forEach(({ text, type }, id) => type === TYPES.normal && this.ids.set(text, id));
    this.byteIds = new Map();
    this.pieces.forEach(({ text, type }, id) => type === TYPES.byte && this.byteIds.set(parseInt(text.slice(3, 5), 16), id));
    this.replacements = new Replacements(normalizer.get(2)?.[0] ?? new Uint8Array());
    this.languages = {};
    for (let id = FIRST_LANGUAGE; this.pieces[id]?.type === TYPES.control; id += 1)
      this.languages[this.pieces[id].text.slice(2, -1)] = id;
  }

  // Returns the ids, the tokens as text, and the span [start, end] of each token in the text.
  encode(text) {
    const symbols = this.merge(this.normalize(text));
    const tokens = symbols.flatMap((symbol) => this.tokensOf(symbol));
    return {
      ids: tokens.map(({ id }) => id),
      pieces: tokens.map(({ id }) => this.pieces[id].text),
      spans: tokens.map(({ start, end }) => [start, end]),
    };
  }

  // Returns the text of ids. Control tokens have no text.
  decode(ids) {
    return this.decodeSpans(ids).text;
  }

  // Returns the text of ids, and the span [start, end] of each token in it.
  decodeSpans(ids) {
    let text = "";
    const spans = [];
    for (let i = 0; i < ids.length; ) {
      const { type, text: piece } = this.pieces[ids[i]];
      if (type === TYPES.byte) {
        const run = this.byteRun(ids, i);
        for (const { character, count } of decodeBytes(run)) {
          for (let byte = 0; byte < count; byte += 1) spans.push([text.length, text.length + character.length]);
          text += character;
        }
        i += run.length;
        continue;
      }
      const start = text.length;
      if (type === TYPES.unknown) text += " \u2047 ";
      else if (type !== TYPES.control) text += (text ? piece : piece.replace(SPACE, "")).replaceAll(SPACE, " ");
      spans.push([start, text.length]);
      i += 1;
    }
    return { text, spans };
  }

  // Returns the bytes of the byte tokens from a position on.
  byteRun(ids, start) {
    let end = start;
    while (end < ids.length && this.pieces[ids[end]].type === TYPES.byte) end += 1;
    return ids.slice(start, end).map((id) => parseInt(this.pieces[id].text.slice(3, 5), 16));
  }

  // Returns the characters of a text with their spans, after normalization: a space is a ▁, the
  // text begins with one, runs of spaces are one, and those at the ends are removed.
  normalize(text) {
    const characters = [];
    let afterSpace = true;
    for (const { replacement, start, end } of this.replacements.apply(text)) {
      const stripped = afterSpace ? replacement.replace(/^ +/, "") : replacement;
      if (stripped && !characters.length) characters.push({ text: SPACE, start, end: start });
      for (const character of stripped)
        characters.push({ text: character === " " ? SPACE : character, start, end });
      afterSpace = stripped ? stripped.endsWith(" ") : afterSpace;
    }
    while (characters.at(-1)?.text === SPACE) characters.pop();
    return characters;
  }

  // Merges neighboring symbols, the best merge first, and returns the symbols that remain.
  merge(characters) {
    const symbols = characters.map((character, i) => ({ ...character, previous: i - 1, next: i + 1 }));
    const agenda = new Heap((a, b) => b.score - a.score || a.left - b.left);
    const propose = (left, right) => {
      if (left < 0 || right >= symbols.length) return;
      const text = symbols[left].text + symbols[right].text;
      const id = this.ids.get(text);
      if (id !== undefined) agenda.push({ score: this.pieces[id].score, left, right, text });
    };
    for (let i = 1; i < symbols.length; i += 1) propose(i - 1, i);
    for (let best = agenda.pop(); best; best = agenda.pop()) {
      const left = symbols[best.left];
      const right = symbols[best.right];
      if (!left.text || !right.text || left.text + right.text !== best.text) continue; // outdated
      Object.assign(left, { text: best.text, end: right.end, next: right.next });
      right.text = "";
      if (right.next < symbols.length) symbols[right.next].previous = best.left;
      propose(left.previous, best.left);
      propose(best.left, left.next);
    }
    return symbols.filter(({ text }) => text);
  }

  // Returns the token of a symbol, or the byte tokens of a character without one.
  tokensOf({ text, start, end }) {
    const id = this.ids.get(text);
    if (id !== undefined) return [{ id, start, end }];
    if (!this.byteIds.size) return [{ id: UNKNOWN, start, end }];
    return Array.from(new TextEncoder().encode(text), (byte) => ({ id: this.byteIds.get(byte), start, end }));
  }
}

function readPiece(bytes) {
  const fields = readFields(bytes);
  return {
    text: readString(fields.get(1)?.[0]),
    score: fields.get(2)?.[0] ?? 0,
    type: fields.get(3)?.[0] ?? TYPES.normal,
  };
}

// The replacements of a normalization rule: a double-array trie of UTF-8 sequences (as of
// darts-clone), and the texts that replace them. The rule `identity` has none.
class Replacements {
  constructor(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const size = bytes.length ? view.getUint32(0, true) : 0;
    this.units = Array.from({ length: size / 4 }, (_, i) => view.getUint32(4 + 4 * i, true));
    this.texts = bytes.subarray(4 + size);
  }

  // Yields the parts of a text with their spans, each as its replacement.
  *apply(text) {
    const characters = Array.from(text.toWellFormed?.() ?? text.replace(LONE_SURROGATE, "\ufffd"));
    for (let i = 0, start = 0; i < characters.length; ) {
      const { length, replacement } = this.longest(characters, i) ?? { length: 1, replacement: characters[i] };
      const end = characters.slice(i, i + length).reduce((sum, { length }) => sum + length, start);
      yield { replacement, start, end };
      i += length;
      start = end;
    }
  }

  // Returns the replacement of the longest sequence of characters that begins at a position.
  longest(characters, first) {
    if (!this.units.length) return null;
    let found = null;
    let node = offset(this.units[0]);
    for (let i = first; i < characters.length; i += 1) {
      for (const byte of new TextEncoder().encode(characters[i])) {
        node ^= byte;
        const unit = this.units[node];
        if (unit === undefined || (unit & 0x800000ff) !== byte) return found;
        node ^= offset(unit);
        if ((unit >>> 8) & 1)
          found = { length: i - first + 1, replacement: this.textAt(this.units[node] & 0x7fffffff) };
      }
    }
    return found;
  }

  textAt(start) {
    return readString(this.texts.subarray(start, this.texts.indexOf(0, start)));
  }
}

const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

const offset = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);

// Yields the characters of UTF-8 bytes. Each byte that is part of none is a U+FFFD.
function* decodeBytes(bytes) {
  for (let i = 0; i < bytes.length; ) {
    const count = [2, 3, 4].reduce((size, n) => (bytes[i] >= [0, 0, 0xc2, 0xe0, 0xf0][n] ? n : size), 1);
    const character = decodeStrictly(bytes.slice(i, i + count));
    yield character === null ? { character: "\ufffd", count: 1 } : { character, count };
    i += character === null ? 1 : count;
  }
}

function decodeStrictly(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  } catch {
    return null;
  }
}

// A binary heap. `compare` is negative if its first argument comes first.
class Heap {
  constructor(compare) {
    this.compare = compare;
    this.items = [];
  }

  push(item) {
    let i = this.items.push(item) - 1;
    for (let parent; i && this.compare(item, this.items[(parent = (i - 1) >> 1)]) < 0; i = parent)
      this.items[i] = this.items[parent];
    this.items[i] = item;
  }

  pop() {
    const [top] = this.items;
    const last = this.items.pop();
    if (this.items.length) this.sink(last);
    return top;
  }

  sink(item) {
    let i = 0;
    for (let child = 1; child < this.items.length; child = 2 * i + 1) {
      if (child + 1 < this.items.length && this.compare(this.items[child + 1], this.items[child]) < 0) child += 1;
      if (this.compare(item, this.items[child]) <= 0) break;
      this.items[i] = this.items[child];
      i = child;
    }
    this.items[i] = item;
  }
}
