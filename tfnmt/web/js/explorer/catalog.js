// The views: their order, their text, and their sections of the paper and functions of the code.

import { crossAttention, decoderAttention, encoderAttention } from "./views/attention.js";
import { beam } from "./views/beam.js";
import { cache } from "./views/cache.js";
import { embeddings } from "./views/embeddings.js";
import { masks } from "./views/masks.js";
import { output } from "./views/output.js";
import { residual } from "./views/residual.js";
import { tokens } from "./views/tokens.js";
import { why } from "./views/why.js";

// Sections of "Attention Is All You Need", with their anchors in the HTML version of arXiv.
const SECTIONS = {
  "3.1": ["Encoder and Decoder Stacks", "S3.SS1"],
  "3.2.1": ["Scaled Dot-Product Attention", "S3.SS2.SSS1"],
  "3.2.2": ["Multi-Head Attention", "S3.SS2.SSS2"],
  "3.2.3": ["Applications of Attention", "S3.SS2.SSS3"],
  "3.4": ["Embeddings and Softmax", "S3.SS4"],
  "3.5": ["Positional Encoding", "S3.SS5"],
  "5.1": ["Training Data and Batching", "S5.SS1"],
  "5.4": ["Regularization", "S5.SS4"],
  "6.1": ["Machine Translation", "S6.SS1"],
};

// Returns the title and the address of a section.
export function sectionLink(section) {
  const [title, anchor] = SECTIONS[section];
  return { title: `Section ${section}, ${title}`, address: `https://arxiv.org/html/1706.03762v7#${anchor}` };
}

// `code` are names of functions in code.json. `controls` are names for controls.js.
export const VIEWS = [
  {
    id: "tokens",
    group: "Text",
    title: "Tokens and training",
    show: tokens,
    text: "The model reads subword tokens, not words. ␣ marks a space before a token. A source and its translation make a training example: at each step, the decoder reads the correct tokens so far and predicts the next one.",
    paper: ["5.1", "3.4"],
    code: ["Tokenizer.encode", "shift_right", "compute_losses"],
  },
  {
    id: "embeddings",
    group: "Text",
    title: "Embeddings and positions",
    show: embeddings,
    controls: ["side"],
    text: "Each token becomes a row of a learned table. Attention does not see the order of its inputs, so waves of different lengths mark the positions.",
    paper: ["3.4", "3.5"],
    code: ["Embedding.call", "sinusoids", "Transformer._embed"],
  },
  {
    id: "encoder",
    group: "Encoder",
    title: "Encoder self-attention",
    show: encoderAttention,
    text: "Each source token collects information from all source tokens. A row of the matrix shows how one token divides its attention. Its weights sum to 1. Every head has its own pattern.",
    paper: ["3.2.1", "3.2.2", "3.2.3"],
    code: ["attention_weights", "EncoderLayer.call"],
  },
  {
    id: "decoder",
    group: "Decoder",
    title: "Masked self-attention",
    show: decoderAttention,
    text: "Each token of the translation collects information from itself and the tokens before it. Later tokens are masked, because they do not exist yet when the model translates.",
    paper: ["3.2.3"],
    code: ["causal_mask", "DecoderLayer.call"],
  },
  {
    id: "cross",
    group: "Decoder",
    title: "Cross-attention",
    show: crossAttention,
    text: "Here the decoder reads the source. Queries come from the translation, keys and values from the encoder output. Some heads find the word that is translated at this step.",
    paper: ["3.2.3"],
    code: ["MultiHeadAttention.call", "Decoder.project_memory"],
  },
  {
    id: "masks",
    group: "All layers",
    title: "Masks",
    show: masks,
    text: "A mask decides which positions a token may attend to. Masked scores become very negative before the softmax, so their weights are 0.",
    paper: ["3.2.3"],
    code: ["padding_mask", "causal_mask", "attention_weights"],
  },
  {
    id: "residual",
    group: "All layers",
    title: "Residual stream",
    show: residual,
    controls: ["side"],
    text: "Each sublayer adds its output to a vector per token, the residual stream. The curves show the length of this vector from the embedding to the last layer. The thick curve is the selected token.",
    paper: ["3.1", "5.4"],
    code: ["Residual.add", "FeedForward.call", "LayerNorm.call"],
  },
  {
    id: "output",
    group: "Output",
    title: "Next-token probabilities",
    show: output,
    controls: ["temperature"],
    text: "The last hidden state is compared with the embedding of every token. The softmax turns the results into probabilities. A low temperature sharpens them, and a high temperature flattens them.",
    paper: ["3.4"],
    code: ["Embedding.logits", "OutputProjection.logits"],
  },
  {
    id: "why",
    group: "Output",
    title: "Why this word",
    show: why,
    text: "Select a token of the translation, above. The view shows the tokens that this step attended to, and other tokens it could have chosen.",
    paper: ["3.2.3"],
    code: ["Transformer.call_with_attention"],
  },
  {
    id: "beam",
    group: "Search",
    title: "Beam search",
    show: beam,
    controls: ["beamSize", "alpha", "temperature"],
    text: "The search keeps the most probable hypotheses, not only one. Each column is a step. Its candidates are sorted by probability. Select a node to see its hypothesis, or to force another token.",
    paper: ["6.1"],
    code: ["beam_search", "length_penalty", "_can_improve"],
  },
  {
    id: "cache",
    group: "Search",
    title: "Cached keys and values",
    show: cache,
    text: "Each step adds one token. Keys and values of the tokens before it stay the same, so the search stores them instead of computing them again.",
    paper: ["3.2.3"],
    code: ["DecoderLayer.step", "Decoder.step", "CacheLayout.write"],
  },
];

export const findView = (id) => VIEWS.find((view) => view.id === id);
