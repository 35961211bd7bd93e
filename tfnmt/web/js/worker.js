// The worker that runs the model, so that the page stays responsive.
//
// A classic worker, because LiteRT.js is a classic script. It answers { id, method, args } with
// { id, result } or { id, error }. While it loads, it reports the bytes that arrived: { received }.

/* global ModuleFactory */

const ROOT = new URL("..", self.location);

// A function that uses an instruction of relaxed SIMD, which not all browsers support.
const RELAXED_SIMD = Uint8Array.from([
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00], // header
  ...[0x01, 0x05, 0x01, 0x60, 0x00, 0x01, 0x7b], // type: () -> v128
  ...[0x03, 0x02, 0x01, 0x00], // one function
  ...[0x0a, 0x0f, 0x01, 0x0d, 0x00], // its code
  ...[0x41, 0x01, 0xfd, 0x0f, 0x41, 0x02, 0xfd, 0x0f, 0xfd, 0x80, 0x02, 0x0b], // i8x16.relaxed_swizzle
]);

let loaded = null;
let received = 0;

const methods = {
  load: async () => (await model()).translator.card,
  tokenize: async (text) => (await model()).translator.tokenizer.encode(text),
  detokenize: async (ids) => (await model()).translator.tokenizer.decode(ids),
  translate: async (text, target) => (await model()).translator.translate(text, target),
  greedy: async (text, target) => (await model()).translator.greedy(text, target),
  alternatives: async (text, target) => (await model()).translator.alternatives(text, target),
  align: async (text, translation, target) => (await model()).translator.align(text, translation, target),
  run: async (name, inputs) => (await model()).engine.run(name, inputs),
};

self.onmessage = async ({ data: { id, method, args } }) => {
  try {
    self.postMessage({ id, result: await methods[method](...args) });
  } catch (error) {
    self.postMessage({ id, error: String(error.message ?? error) });
  }
};

const model = () => (loaded ??= load());

async function load() {
  const build = WebAssembly.validate(RELAXED_SIMD) ? "litert_wasm_internal" : "litert_wasm_compat_internal";
  importScripts(new URL(`litert/${build}.js`, ROOT));
  const [{ Engine }, { Translator }, wasm, graphs, tokenizer, card, shapes] = await Promise.all([
    import("./engine.js"),
    import("./translator.js"),
    download(`litert/${build}.wasm.gz`),
    download("model/model.tflite.gz"),
    download("model/tokenizer.model"),
    download("model/model_card.json").then(parse),
    download("model/shapes.json").then(parse),
  ]);
  const engine = await Engine.load({ factory: ModuleFactory, wasm, graphs, shapes });
  return { engine, translator: new Translator(engine, tokenizer, card) };
}

const parse = (bytes) => JSON.parse(new TextDecoder().decode(bytes));

// Returns the bytes of a file of this folder, decompressed.
async function download(name) {
  const response = await fetch(new URL(name, ROOT));
  if (!response.ok) throw new Error(`${name}: the server answered ${response.status}`);
  const bytes = await receive(response);
  const compressed = bytes[0] === 0x1f && bytes[1] === 0x8b; // some servers decompress .gz files
  if (!compressed) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function receive(response) {
  const parts = [];
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    parts.push(value);
    received += value.length;
    self.postMessage({ received });
  }
}
