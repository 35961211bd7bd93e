// The beam as a tree: one column per step, its candidates from top to bottom by probability.

import { draw, make } from "../dom.js";
import { bestOf, tokensOf } from "../search.js";
import { percent, shortLabel, tokenLabel } from "../text.js";
import { topTokens } from "./output.js";

const COLUMN = 132;
const ROW = 46;
const NODE = { width: 100, height: 36 };

export function beam(scene) {
  const { search, state, act } = scene;
  const selected = search.nodes[Math.min(state.node ?? bestOf(search), search.nodes.length - 1)];
  return [
    toolbar(scene),
    tree(scene, selected),
    make("p", { className: "quiet" }, status(search)),
    make("div", { className: "columns" }, details(scene, selected), finishedList(scene, act)),
  ];
}

function toolbar({ search, isSearching, act }) {
  const button = (text, onclick, disabled) =>
    make("button", { type: "button", onclick, disabled, "data-key": `beam-${text}` }, text);
  return make(
    "div",
    { className: "toolbar" },
    button("Start again", act.restartSearch, isSearching),
    button("One step", act.stepSearch, search.isDone || isSearching),
    button("Run to the end", act.runSearch, search.isDone || isSearching),
  );
}

function status(search) {
  const { live, finished, nodes, bound, isDone, depth } = search;
  const parts = [`Step ${depth}: ${live.length} live and ${finished.length} finished hypotheses.`];
  if (finished.length && Number.isFinite(bound))
    parts.push(
      `The best finished score is ${nodes[finished[0]].score.toFixed(3)}; a live hypothesis can reach at most ${bound.toFixed(3)}.`,
    );
  parts.push(isDone ? "The search is done: no live hypothesis can become the best." : "The search continues.");
  return parts.join(" ");
}

// --- Tree -----------------------------------------------------------------------------------------

function tree({ search, pieceOf, act }, selected) {
  const best = path(search, bestOf(search));
  const rows = Math.max(...search.nodes.map(({ rank }) => rank)) + 1;
  const [width, height] = [COLUMN * (search.depth + 1), ROW * rows];
  const buttons = search.nodes.map((node) => {
    const label = node.token === null ? "<s>" : pieceOf(node.token);
    return make(
      "button",
      {
        type: "button",
        className: `node ${node.outcome} ${best.has(node.id) ? "best" : ""} ${node.isForced ? "forced" : ""}`,
        style: { left: `${COLUMN * node.depth}px`, top: `${ROW * node.rank}px`, width: `${NODE.width}px`, height: `${NODE.height}px` },
        onclick: () => act.set({ node: node.id }),
        tabIndex: node.id === selected.id ? 0 : -1,
        "aria-pressed": String(node.id === selected.id),
        "aria-label": `${tokenLabel(label)}, ${percent(node.probability)}, ${node.outcome}`,
        "data-key": `node-${node.id}`,
      },
      make("span", { className: "token" }, shortLabel(label)),
      make("small", {}, node.token === null ? "" : percent(node.probability)),
    );
  });
  const edges = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const lines = search.nodes.slice(1).map((node) => edge(search.nodes[node.parent], node, best.has(node.id)));
  edges.append(...lines.sort((one, other) => one.classList.contains("best") - other.classList.contains("best")));
  const canvas = make("div", { className: "tree", style: { width: `${width}px`, height: `${height}px` } }, edges, ...buttons);
  canvas.addEventListener("keydown", (event) => moveInTree(event, search, selected, act));
  const frame = { className: "scroll tree-frame", role: "region", "aria-label": "Search tree", tabIndex: 0, "data-scroll": "tree" };
  return make("div", frame, canvas);
}

function edge(parent, node, isBest) {
  const start = [COLUMN * parent.depth + NODE.width, ROW * parent.rank + NODE.height / 2];
  const end = [COLUMN * node.depth, ROW * node.rank + NODE.height / 2];
  const middle = (start[0] + end[0]) / 2;
  const d = `M ${start} C ${middle} ${start[1]}, ${middle} ${end[1]}, ${end}`;
  return draw("path", { d, class: `${node.outcome} ${isBest ? "best" : ""}`, "stroke-width": 1 + 3 * node.probability });
}

// Returns the nodes from the root to a node.
function path(search, id) {
  const ids = new Set();
  for (let node = id; node !== null; node = search.nodes[node].parent) ids.add(node);
  return ids;
}

// Left is the parent, right the most probable child; up and down stay in the column.
function moveInTree(event, { nodes }, selected, act) {
  const inColumn = (rank) => nodes.find((node) => node.depth === selected.depth && node.rank === rank);
  const next = {
    ArrowLeft: () => nodes[selected.parent],
    ArrowRight: () => nodes.find(({ parent }) => parent === selected.id),
    ArrowUp: () => inColumn(selected.rank - 1),
    ArrowDown: () => inColumn(selected.rank + 1),
  }[event.key]?.();
  if (!next) return;
  event.preventDefault();
  event.currentTarget.querySelector(`[data-key="node-${next.id}"]`).focus();
  act.set({ node: next.id });
}

// --- Details --------------------------------------------------------------------------------------

const OUTCOMES = {
  live: "is live: it stays in the beam",
  finished: "is finished",
  pruned: "was pruned, because others were more probable or the search ended",
  truncated: "reached the length limit",
};

function details({ search, pieceOf, decode, act, distributionAfter }, node) {
  const before = node.parent === null ? [] : tokensOf(search, node.parent);
  const alternatives = make("div", {});
  if (node.parent !== null) {
    const logProbs = distributionAfter(before);
    if (logProbs) alternatives.append(topTokens({ logProbs, chosen: node.token, pieceOf, choose: (id) => act.force(before.length, id, before) }));
  }
  const text = decode(tokensOf(search, node.id));
  return make(
    "section",
    {},
    make("h3", {}, node.token === null ? "The start of every hypothesis" : `“${tokenLabel(pieceOf(node.token))}” at step ${node.depth}`),
    make(
      "p",
      {},
      text ? `The hypothesis “${text}” ${OUTCOMES[node.outcome]}. ` : "",
      `Its log probability is ${node.logProb.toFixed(3)}`,
      node.score === undefined ? "." : `, its score ${node.score.toFixed(3)}.`,
    ),
    ...(node.parent === null ? [] : [make("p", {}, "Force another token here, and continue:"), alternatives]),
  );
}

function finishedList({ search, decode }, act) {
  const items = search.finished.map((id) =>
    make(
      "li",
      {},
      make(
        "button",
        { type: "button", onclick: () => act.set({ node: id }), "data-key": `finished-${id}` },
        make("span", { className: "name wide" }, decode(tokensOf(search, id))),
        make("span", { className: "number" }, search.nodes[id].score.toFixed(3)),
      ),
    ),
  );
  const { comparison } = search;
  return make(
    "section",
    {},
    make("h3", {}, "Finished hypotheses, with their scores"),
    items.length ? make("ol", { className: "bars finished" }, ...items) : make("p", { className: "quiet" }, "None yet."),
    ...(comparison ? [make("p", { className: comparison.isSame ? "quiet check" : "quiet" }, comparison.text)] : []),
  );
}
