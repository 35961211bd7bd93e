// A model and the sentence that it is run on. All numbers of the explorer come from the model's file.

import { EOS, PAD } from "../tokenizer.js";
import { Translator } from "../translator.js";
import { advance, bestOf, startSearch, tokensOf } from "./search.js";
import { Tensor } from "./tensor.js";

const fetchFile = (name) => fetch(new URL(`../../model/${name}`, import.meta.url));

const LONGEST = 40; // tokens of a source that are shown, EOS included

export class Session {
  // Loads the model.
  static async load(model) {
    const card = await model.load();
    const [shapes, tokenizer] = await Promise.all(["shapes.json", "tokenizer.model"].map(fetchFile));
    if (!("inspect" in (await shapes.json())))
      throw new Error("an earlier version exported this model; export it again");
    return new Session(model, card, new Uint8Array(await tokenizer.arrayBuffer()));
  }

  constructor(model, card, tokenizer) {
    Object.assign(this, { model, card });
    this.codec = new Translator(null, tokenizer, card); // encodes and decodes only
    const { decoding } = card.config;
    this.defaults = { beamSize: decoding.beam_size, alpha: decoding.length_penalty, temperature: 1 };
  }

  pieceOf = (id) => this.codec.tokenizer.pieces[id].text;

  decode = (ids) => this.codec.tokenizer.decode(ids.filter((id) => id > EOS));

  // Sets the sentence. `language` is that of the translation, or null if the model has only one.
  // Positions in `hidden` get the id of padding.
  open(text, language, hidden) {
    const { max_source_length: longest } = this.card.limits;
    const limit = Math.min(LONGEST, longest);
    const { ids, truncated } = this.codec.encode(text, limit, language);
    this.isTruncated = truncated;
    this.text = text;
    this.language = language;
    this.source = ids;
    this.masked = ids.map((id, index) => (hidden.has(index) ? PAD : id));
    // Whether the search of the file translates the same source.
    this.isInFile = hidden.size === 0 && (!truncated || limit === longest);
    this.distributions = new Map(); // a search of the sentence before may still fill the old one
  }

  // Returns the ids of a text as a translation, EOS included.
  encodeTranslation = (text) => {
    const { max_source_length: source, max_translation_length: translation } = this.card.limits;
    return this.codec.encode(text, Math.min(LONGEST, Math.max(source, translation))).ids;
  };

  // Returns the tensors of the sentence with this translation, without their batch dimension.
  async inspect(target) {
    const outputs = await this.model.run("inspect", { source: this.masked, target });
    return Object.fromEntries(
      Object.entries(outputs).map(([name, { data, shape }]) => [name, new Tensor(data, shape).at(0)]),
    );
  }

  // --- Search -------------------------------------------------------------------------------------

  // The largest number of tokens of a translation, EOS included.
  get limit() {
    const { max_length: longest, max_extra_length: extra } = this.card.config.decoding;
    return longest ?? this.masked.filter((id) => id !== PAD).length + extra;
  }

  isDefault = (settings, prefix) =>
    !prefix.length && Object.entries(this.defaults).every(([name, value]) => settings[name] === value);

  // Starts a search whose hypotheses all begin with a prefix.
  async start(settings, prefix) {
    const limit = Math.max(this.limit, prefix.length);
    const given = [];
    for (let length = 0; length < prefix.length; length += 1) {
      const logProbs = await this.distribution(prefix.slice(0, length), prefix);
      given.push(logProbs[prefix[length]]);
    }
    return startSearch({ ...settings, limit }, prefix, given);
  }

  async step(search) {
    const distributions = [];
    for (const id of search.live) distributions.push(await this.distribution(tokensOf(search, id)));
    return advance(search, distributions);
  }

  // Returns the translation as ids. The search of the file is faster, and knows the default settings.
  // Another search stops when another sentence is opened.
  async translate(settings, prefix) {
    if (this.source.length < 2) return [EOS];
    if (this.isDefault(settings, prefix) && this.isInFile)
      return (await this.model.translate(this.text, this.language)).ids;
    const { distributions } = this;
    let search = await this.start(settings, prefix);
    while (!search.isDone && distributions === this.distributions) search = await this.step(search);
    return tokensOf(search, bestOf(search));
  }

  // Compares a finished search with the one inside the file: { isSame, text }. Returns null if the file
  // has no search with these settings.
  async compare(search, settings, prefix) {
    if (!this.isDefault(settings, prefix) || !this.isInFile) return null;
    const { ids, score, text } = await this.model.translate(this.text, this.language);
    const isSame = String(ids) === String(tokensOf(search, bestOf(search)));
    const found = isSame ? "the same translation" : `another translation, “${text}”`;
    return { isSame, text: `The search inside the model file finds ${found}, with the score ${score.toFixed(3)}.` };
  }

  // Returns the log probabilities of the token after these tokens. A longer hypothesis that begins
  // with them may be given: one run then yields the distributions of all its positions.
  async distribution(tokens, longer = tokens) {
    const { distributions } = this;
    const key = String(tokens);
    if (!distributions.has(key)) {
      const { log_probs: rows } = await this.inspect([...longer, EOS]);
      for (let length = 0; length <= longer.length; length += 1) {
        const prefix = String(longer.slice(0, length));
        // A copy, because a row that shares the memory of its tensor keeps all of its rows.
        if (!distributions.has(prefix)) distributions.set(prefix, rows.at(length).data.slice());
      }
    }
    return distributions.get(key);
  }

  distributionAfter = (tokens) => this.distributions.get(String(tokens));
}
