// The guided tour: twelve steps, each with the explorer in a prepared state.
//
// `prepare` computes the state from the tensors of the sentence, because every model has other heads.

import { max } from "./probabilities.js";

// The sentence of the tour by source language.
export const SENTENCES = {
  en: "The old man reads a book in the garden.",
  de: "Der alte Mann liest ein Buch im Garten.",
  fr: "Le vieil homme lit un livre dans le jardin.",
  es: "El viejo lee un libro en el jardín.",
};

export const TOUR = [
  {
    title: "One training example",
    view: "tokens",
    prepare: () => ({ step: 0, position: 0 }),
    text: "The model learned from pairs: a sentence and its translation. The table shows a pair as the decoder sees it. At each step, it reads the correct tokens so far and predicts the next one. This is called teacher forcing. If the correct token gets a low probability, the loss is high. Because the correct tokens are known, training computes all steps at once.",
    task: "Enter another translation below the table. Which tokens have a high loss?",
  },
  {
    title: "Text becomes tokens",
    view: "tokens",
    prepare: () => ({ step: 1, position: 1 }),
    text: "A vocabulary of all words would never be complete. This one has only some words and many parts of words. Frequent words are one token, rare words are several, and unknown characters become bytes. So the model can read every text. The number under a token is its id, its row in the vocabulary.",
    task: "Type a rare word, or your name, into the text. How many tokens does it have?",
  },
  {
    title: "Tokens become vectors",
    view: "embeddings",
    prepare: () => ({ side: "source", position: 0 }),
    text: "The model computes with vectors. The first picture has one row for each token: its embedding, learned in training. Tokens with similar roles get similar rows. Usually, source and translation share one table, which also chooses the next token.",
    task: "Switch to the translation. The first row is <s>, the token at which every translation begins.",
  },
  {
    title: "Positions are added",
    view: "embeddings",
    prepare: ({ source }) => ({ side: "source", position: Math.min(4, source.length - 1) }),
    text: "Without positions, “dog bites man” and “man bites dog” would be the same to attention. So each position has its own pattern of sine and cosine waves, which is added to the embedding. The bars show that the patterns of neighbors resemble each other.",
    task: "Select another position in the bars, and watch how the resemblance moves with it.",
  },
  {
    title: "Attention: tokens read from each other",
    view: "encoder",
    prepare: ({ tensors }) => ({ heads: { encoder: sharpestHead(tensors.encoder) } }),
    text: "Each token makes a query, a key and a value. The query is compared with the keys of all tokens, and the softmax turns the results into weights. The token then receives the average of the values with these weights. In the picture, a strong arc is a large weight.",
    task: "Select a token in the lower row, and see which tokens it reads from.",
  },
  {
    title: "Several heads, several patterns",
    view: "encoder",
    prepare: ({ tensors }) => ({ heads: { encoder: { layer: tensors.encoder.shape[0] - 1, head: 0 } } }),
    text: "One average would mix everything. So each layer has several heads, each with its own queries, keys and values. Some heads attend to the neighbor, some to the verb, some to the end of the sentence. Nobody programs these patterns. They come from training.",
    task: "Compare the heads. Can you find one that always attends to the previous token?",
  },
  {
    title: "Layers add to a stream",
    view: "residual",
    prepare: () => ({ side: "source" }),
    text: "A layer does not replace a vector. It adds its result to it. So the information of the first layers stays available to the last one, and gradients reach all layers in training. The curve shows the length of the vector after each sublayer.",
    task: "Select other tokens of the source. Which sublayers change them most?",
  },
  {
    title: "The decoder cannot look ahead",
    view: "decoder",
    prepare: ({ target }) => ({ heads: { decoder: { layer: 0, head: "average" } }, step: middle(target) }),
    text: "The decoder has self-attention, too. But a token may attend only to itself and to earlier ones. The upper right half of the matrix is masked. So training can compute all steps at once, and no step can copy the answer from the next token.",
    task: "Move through the matrix with the arrow keys. What happens right of the diagonal?",
  },
  {
    title: "The decoder reads the source",
    view: "cross",
    prepare: ({ tensors, target }) => ({ heads: { cross: sharpestHead(tensors.cross) }, step: middle(target) }),
    text: "In cross-attention, the queries come from the translation, and the keys and values from the encoder. So each step can find the source words that matter now. In many heads, a token of the translation attends most to the word that it translates.",
    task: "Move through the translation, above. The source tokens are shaded by the attention of each step.",
  },
  {
    title: "The next token is a choice",
    view: "output",
    prepare: ({ tensors, target }) => ({ step: leastCertainStep(tensors, target), temperature: 1 }),
    text: "The last vector is compared with the embeddings of all tokens. The softmax turns the results into probabilities. Often one token has nearly all of the probability. Here you see the step at which the model was least certain.",
    task: "Select the second token of the list. The model continues with it. Does the rest of the sentence change?",
  },
  {
    title: "The search compares hypotheses",
    view: "beam",
    prepare: () => ({}),
    text: "The most probable first token does not always begin the most probable sentence. Beam search keeps several hypotheses and continues all of them. Longer sentences have lower probabilities, so the length penalty makes the scores comparable. It stops when no live hypothesis can win.",
    task: "Press “One step” several times. Then force another token, or change the beam size.",
  },
  {
    title: "Keys and values are cached",
    view: "cache",
    prepare: ({ target }) => ({ step: middle(target) }),
    text: "Each step of the search adds one token. Earlier tokens cannot attend to it, so their keys and values stay the same. The search therefore stores them, and computes one position per step instead of all. This makes translation fast. It is possible only because of the causal mask.",
    task: "Select other steps of the translation. Only the orange part of the picture is new.",
  },
];

const middle = (tokens) => Math.floor(tokens.length / 2);

// Returns the head whose largest weights are largest on average.
function sharpestHead(weights) {
  const [layers, heads, rows] = weights.shape;
  let best = { layer: 0, head: 0, sharpness: 0 };
  for (let layer = 0; layer < layers; layer += 1)
    for (let head = 0; head < heads; head += 1) {
      const sharpness = weights.at(layer, head).parts().reduce((sum, row) => sum + max(row.data), 0) / rows;
      if (sharpness > best.sharpness) best = { layer, head, sharpness };
    }
  return { layer: best.layer, head: best.head };
}

// Returns the step whose token had the lowest probability.
function leastCertainStep(tensors, target) {
  const logProbs = target.map(({ id }, step) => tensors.log_probs.at(step).data[id]);
  return logProbs.indexOf(Math.min(...logProbs));
}
