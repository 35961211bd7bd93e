// Translates sentences: text to ids, the search of the LiteRT file, and ids to text.
//
// The counterpart of tfnmt/litert/model.py, with the same results.

import { EOS, PAD, Tokenizer } from "./tokenizer.js";

const MISSING_SCORE = -1e9; // of a hypothesis that the search did not find

export class Translator {
  // engine: runs the graphs. tokenizer: the bytes of the SentencePiece model. card: the model card.
  constructor(engine, tokenizer, card) {
    this.engine = engine;
    this.tokenizer = new Tokenizer(tokenizer);
    this.card = card;
  }

  // Returns the best translation of a sentence.
  translate(text, target) {
    const source = this.encode(text, this.card.limits.max_source_length, target);
    const { tokens, scores } = this.search("search", source.ids, { count: 1 });
    return { ...this.hypothesis(tokens, scores, 0), truncated: source.truncated };
  }

  // Returns the translation of greedy search, which is faster.
  greedy(text, target) {
    const source = this.encode(text, this.card.limits.max_source_length, target);
    const { tokens, scores } = this.search("greedy", source.ids, {});
    return { ...this.hypothesis(tokens, scores, 0), truncated: source.truncated };
  }

  // Returns the translations of the beam, the best first, each text once.
  alternatives(text, target) {
    const count = this.card.limits.beam_size;
    const source = this.encode(text, this.card.limits.max_source_length, target);
    const { tokens, scores } = this.search("search", source.ids, { count });
    const distinct = new Map();
    scores.data.forEach((score, row) => {
      const found = this.hypothesis(tokens, scores, row);
      if (score > MISSING_SCORE && !distinct.has(found.text)) distinct.set(found.text, found);
    });
    return [...distinct.values()];
  }

  // Force-decodes a translation. Returns its tokens and those of the sentence, as { pieces, spans },
  // the attention weights of each translation token (rows) on each source token, and the log
  // probability of each translation token.
  align(text, translation, target) {
    const { max_source_length, max_translation_length } = this.card.limits;
    const source = this.encode(text, max_source_length, target);
    const output = this.encode(translation, Math.max(max_source_length, max_translation_length));
    const { attention, token_log_probs } = this.engine.run("align", { source: source.ids, target: output.ids });
    const width = source.ids.length;
    const rows = output.ids.map((_, row) => attention.data.slice(row * width, (row + 1) * width));
    return { source, target: output, attention: rows, logProbs: token_log_probs.data };
  }

  // Returns at most `limit` ids with their tokens and spans: [language token,] tokens, EOS.
  encode(text, limit, target = null) {
    const { ids, pieces, spans } = this.tokenizer.encode(text);
    const begin = target !== null && ids.length ? [this.languageToken(target)] : [];
    const room = limit - begin.length - 1;
    const names = (control) => control.map((id) => this.tokenizer.pieces[id].text);
    const end = ids.length > room ? (spans[room - 1]?.[1] ?? 0) : text.length;
    return {
      ids: [...begin, ...ids.slice(0, room), EOS],
      pieces: [...names(begin), ...pieces.slice(0, room), ...names([EOS])],
      spans: [...begin.map(() => [0, 0]), ...spans.slice(0, room), [end, end]],
      truncated: ids.length > room,
    };
  }

  languageToken(target) {
    const { languages } = this.tokenizer;
    if (!(target in languages))
      throw new Error(`${target}: unknown; the model translates to ${Object.keys(languages).join(", ")}`);
    return languages[target];
  }

  // Returns the tokens and scores of a search. The first search has a small cache length, which makes
  // it fast. If a longer translation may be better, another one has the largest cache length.
  search(kind, source, inputs) {
    if (source.length < 2) return EMPTY; // EOS only
    const length = Math.min(source.length + this.card.extra_length, this.card.limits.max_translation_length);
    const run = (room) => this.engine.run(kind, { ...inputs, source, room: new Int32Array(room) });
    const found = run(length);
    return found.complete.data[0] ? found : run(found.limit.data[0]);
  }

  hypothesis(tokens, scores, row) {
    const length = tokens.shape.at(-1);
    const ids = [...tokens.data.subarray(row * length, (row + 1) * length)].filter((id) => id !== PAD);
    return { text: this.tokenizer.decode(ids.filter((id) => id > EOS)), score: scores.data[row], ids };
  }
}

const EMPTY = {
  tokens: { data: new Int32Array(1), shape: [1, 1, 1] },
  scores: { data: new Float32Array(1), shape: [1, 1] },
};
