// Beam search, one step at a time. It keeps every candidate, so that the search can be drawn as a tree.
//
// It makes the same decisions as beam_search in tfnmt/decoding/search.py. A search is never changed:
// each step returns a new one.

import { EXCLUDED, temper, topK } from "./probabilities.js";

const EOS = 2;

// Returns ((5 + n) / 6)^alpha for n tokens, EOS included.
export const lengthPenalty = (length, alpha) => ((5 + length) / 6) ** alpha;

// Starts a search.
//
// `settings` are {beamSize, alpha, temperature, limit}: the limit is the largest number of tokens, EOS
// included. Every hypothesis begins with the ids of `prefix`, whose log probabilities are `given`.
//
// A search has `nodes`, the root first: {id, parent, token, depth, rank, logProb, probability, outcome,
// score}. The outcome is "live", "finished", "pruned" or "truncated". `live` and `finished` are ids of
// nodes, best first.
export function startSearch(settings, prefix = [], given = []) {
  const nodes = [{ id: 0, parent: null, token: null, depth: 0, rank: 0, logProb: 0, probability: 1, outcome: "live" }];
  prefix.forEach((token, index) => {
    const { id, logProb } = nodes.at(-1);
    nodes.push({
      id: id + 1,
      parent: id,
      token,
      depth: index + 1,
      rank: 0,
      logProb: logProb + given[index],
      probability: Math.exp(given[index]),
      outcome: "live",
      isForced: true,
    });
  });
  const last = nodes.at(-1);
  if (last.token !== EOS) return finishIfDone({ settings, nodes, live: [last.id], finished: [], depth: prefix.length });
  const ended = { ...last, outcome: "finished", score: score(last, settings) };
  return { settings, nodes: [...nodes.slice(0, -1), ended], live: [], finished: [ended.id], depth: prefix.length, isDone: true };
}

// Returns the tokens of a node's hypothesis.
export function tokensOf(search, id) {
  const tokens = [];
  for (let node = search.nodes[id]; node.parent !== null; node = search.nodes[node.parent]) tokens.unshift(node.token);
  return tokens;
}

// Returns the best node: the best finished one, or else the best live one.
export const bestOf = (search) => search.finished[0] ?? search.live[0] ?? 0;

// Returns the search after one more step. `distributions` are the log probabilities of the next token
// after each live hypothesis.
export function advance(search, distributions) {
  const { settings } = search;
  const depth = search.depth + 1;
  const candidates = bestCandidates(search, distributions).map((candidate, rank) => ({
    ...candidate,
    id: search.nodes.length + rank,
    depth,
    rank,
    outcome: "pruned",
  }));
  const live = candidates.filter(({ token }) => token !== EOS).slice(0, settings.beamSize);
  // EOS ends a hypothesis only among the first candidates. A beam of 1 is then exactly greedy search.
  const ended = candidates.slice(0, settings.beamSize).filter(({ token }) => token === EOS);
  const isAtLimit = depth >= settings.limit;
  const isEmpty = !search.finished.length && !ended.length;
  const truncated = isAtLimit && isEmpty ? live : [];
  for (const node of live) node.outcome = isAtLimit ? "pruned" : "live";
  for (const node of ended) Object.assign(node, { outcome: "finished", score: score(node, settings) });
  for (const node of truncated) Object.assign(node, { outcome: "truncated", score: score(node, settings) });
  const nodes = [...search.nodes, ...candidates];
  const finished = [...search.finished, ...ended.map(({ id }) => id), ...truncated.map(({ id }) => id)];
  finished.sort((one, other) => nodes[other].score - nodes[one].score);
  return finishIfDone({
    settings,
    nodes,
    live: isAtLimit ? [] : live.map(({ id }) => id),
    finished: finished.slice(0, settings.beamSize),
    depth,
  });
}

// Returns the best 2K continuations: each live hypothesis has one that ends, so K of them stay.
function bestCandidates({ nodes, live, settings }, distributions) {
  const count = 2 * settings.beamSize;
  const all = live.flatMap((parent, index) => {
    const logProbs = temper(distributions[index], settings.temperature);
    return topK(logProbs, count)
      .filter((token) => logProbs[token] > EXCLUDED)
      .map((token) => ({
        parent,
        token,
        probability: Math.exp(logProbs[token]),
        logProb: nodes[parent].logProb + logProbs[token],
      }));
  });
  return all.sort((one, other) => other.logProb - one.logProb).slice(0, count);
}

// The bound is exact: log probabilities only decrease, and the penalty is largest at the limit.
function finishIfDone(search) {
  const { nodes, live, finished, settings } = search;
  const bound = live.length ? nodes[live[0]].logProb / lengthPenalty(settings.limit, settings.alpha) : -Infinity;
  const worst = finished.length ? nodes[finished[0]].score : -Infinity;
  return { ...search, bound, isDone: !(bound > worst) || search.depth >= settings.limit };
}

const score = ({ logProb, depth }, { alpha }) => logProb / lengthPenalty(depth, alpha);
