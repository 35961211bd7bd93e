// The model, as the page sees it. A worker computes; all methods return promises.

export class Model {
  // `onProgress` receives the number of bytes that arrived.
  constructor(onProgress = () => {}) {
    this.onProgress = onProgress;
    this.waiting = new Map();
    this.count = 0;
  }

  // Loads the model and returns its card.
  load() {
    return this.call("load");
  }

  // Returns { ids, pieces, spans } of a text.
  tokenize(text) {
    return this.call("tokenize", text);
  }

  // Returns the text of ids.
  detokenize(ids) {
    return this.call("detokenize", ids);
  }

  // Returns the best translation of a sentence: { text, score, ids, truncated }. `target` is a
  // language, or null for a model with one direction.
  translate(text, target) {
    return this.call("translate", text, target);
  }

  // As `translate`, with greedy search.
  greedy(text, target) {
    return this.call("greedy", text, target);
  }

  // Returns the translations of the beam, the best first: [{ text, score, ids }].
  alternatives(text, target) {
    return this.call("alternatives", text, target);
  }

  // Returns { source, target, attention, logProbs } of a sentence and its translation. `source` and
  // `target` are { ids, pieces, spans }. `attention` has a row per target token.
  align(text, translation, target) {
    return this.call("align", text, translation, target);
  }

  // Runs a graph of the model, for example run("attention", { source: ids, target: ids }). Returns
  // { data, shape } by output; `data` is a typed array.
  run(graph, inputs) {
    return this.call("run", graph, inputs);
  }

  call(method, ...args) {
    this.worker ??= this.start();
    const id = (this.count += 1);
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, method, args });
    });
  }

  start() {
    const worker = new Worker(new URL("./worker.js", import.meta.url));
    worker.onmessage = ({ data }) => (data.id ? this.settle(data) : this.onProgress(data.received));
    worker.onerror = ({ message }) => {
      for (const id of this.waiting.keys()) this.settle({ id, error: message ?? "the worker cannot start" });
    };
    return worker;
  }

  settle({ id, result, error }) {
    const { resolve, reject } = this.waiting.get(id);
    this.waiting.delete(id);
    if (error === undefined) resolve(result);
    else reject(new Error(error));
  }
}
