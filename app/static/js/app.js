// The page: what its parts have to do with one another.

import { aligned, longest, sentences } from "./alignment.js";
import { Alternatives } from "./alternatives.js";
import { ApiError, ask, keep, models } from "./api.js";
import { AttentionView } from "./attention.js";
import { find, lead } from "./dom.js";
import { Languages } from "./languages.js";
import { Live } from "./live.js";
import { Output } from "./output.js";
import { Source } from "./source.js";
import { length } from "./text.js";
import { Trouble } from "./trouble.js";
import { Upload } from "./upload.js";

const LOOK_AGAIN = 2000; // ms until the models are asked for again that were not there

const source = new Source();
const output = new Output((parts) => source.mark(parts));
const attention = new AttentionView();
const alternatives = new Alternatives((chosen) => {
  show(chosen);
  read(chosen.text);
});
const languages = new Languages(turn);
const trouble = new Trouble(find("source-error"), find("source"));
const live = new Live(translate, took, failed);
let limits = { max_chars: Infinity, max_texts: 1, max_alternatives: 0 };
let reading; // the request that aligns what is shown

new Upload(() => ({ limits, languages: languages.pair }));

// Translating.

function translate(mode, signal) {
  output.busy = true;
  const count = mode === "beam" ? limits.max_alternatives : 0;
  return ask("translate", { text: source.text, ...languages.pair, mode, alternatives: count }, signal);
}

function took(mode, { translations: [best], took_ms }) {
  output.busy = false;
  trouble.clear();
  show(best);
  find("took").textContent = took_ms < 10 ? "" : `${(took_ms / 1000).toFixed(2)} s`;
  find("status").textContent = "";
  if (mode === "beam") {
    speak(best.text);
    read(best.text);
    alternatives.show([best, ...best.alternatives], languages.pair.target);
    if (best.truncated) tell("A sentence is longer than the model takes; its end was left out.");
  }
}

function failed(mode, error) {
  output.busy = false;
  if (error.status === 401) askForKey();
  trouble.show(error, () => live.now());
}

function show({ text, score }) {
  reading?.abort();
  output.show(text, languages.pair.target);
  find("copy").disabled = !text;
  find("score").textContent = text ? `Model score ${score.toFixed(2)}` : "";
}

// Lets a screen reader hear a translation, when it is one to stay.
function speak(text) {
  find("spoken").lang = languages.pair.target;
  find("spoken").textContent = text;
}

// Asks what the words of a translation come from, when it is one to stay.
async function read(translation) {
  reading?.abort();
  const request = (reading = new AbortController());
  const { text } = source;
  const { pair } = languages;
  try {
    const { pairs } = await ask("align", { text, translation, ...pair }, request.signal);
    if (request !== reading) return;
    output.show(translation, pair.target, aligned(text, translation, pairs, pair));
    attention.set(sentences(text, translation, pairs), pair);
    warn(longest(pairs));
  } catch (error) {
    if (!(error instanceof ApiError) && error.name !== "AbortError") throw error;
    // The translation stands; its words only say nothing of themselves, nor of another text.
    if (request === reading && error instanceof ApiError) attention.set([], {});
  }
}

function warn(pieces) {
  const trained = languages.model?.limits.longest_trained;
  if (pieces <= trained || find("note").textContent) return;
  tell(`A sentence has ${pieces} pieces; the model was trained on ${trained} at most, and may do worse here.`);
}

const tell = (note) => {
  find("note").textContent = note;
};

function changed() {
  reading?.abort();
  trouble.clear();
  tell("");
  alternatives.stale();
  output.forget();
  if (!languages.model) return; // the models are not known yet; see look()
  if (source.blank || source.tooLong) {
    live.stop();
    output.busy = false;
    if (source.blank) empty();
    else trouble.show({ status: 422, message: `The text is longer than ${source.limit} characters.` });
    return;
  }
  live.changed(length(source.text));
}

function empty() {
  output.show("", languages.pair.target);
  alternatives.clear();
  attention.set([], {});
  for (const id of ["score", "spoken", "status", "took"]) find(id).textContent = "";
  find("copy").disabled = true;
}

// Other languages; where they were swapped, the texts change places if the one is of the other.
function turn(swapped) {
  if (swapped && output.current && output.text) source.text = output.text;
  describe();
  changed();
}

// The models.

async function look() {
  try {
    const found = await models();
    limits = found.limits;
    source.limit = limits.max_chars;
    source.refresh();
    languages.set(found.models);
    find("file-start").disabled = !languages.model;
    describe();
    const ready = found.models.some((model) => model.ready);
    state(ready ? "" : "The model is not ready yet.");
    if (!ready) setTimeout(look, LOOK_AGAIN);
    else if (!source.blank) changed(); // typed while the page was loading
  } catch (error) {
    state(error.message);
    if (error.status === 401) askForKey();
    else setTimeout(look, LOOK_AGAIN);
  }
}

function describe() {
  source.field.lang = languages.pair.source;
  const model = languages.model;
  find("model").textContent = model ? `${model.name} · version ${model.version}` : "";
}

function state(text) {
  find("state").textContent = text;
  find("state").hidden = !text;
}

function askForKey() {
  find("key").hidden = false;
  lead(find("key-value"), find("key"));
}

// The page's own controls.

source.field.addEventListener("compositionstart", () => {
  live.composing = true;
});
source.field.addEventListener("compositionend", () => {
  live.composing = false;
  changed();
});
source.field.addEventListener("input", changed);
source.field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (languages.model && !source.blank && !source.tooLong) live.now();
});
find("clear").addEventListener("click", () => {
  source.text = "";
  changed();
  source.field.focus();
});
find("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(output.text);
    find("status").textContent = "Copied.";
  } catch {
    find("status").textContent = "The browser does not let this page copy.";
  }
});
find("key").addEventListener("submit", (event) => {
  event.preventDefault();
  keep(find("key-value").value);
  find("key").hidden = true;
  trouble.clear();
  look();
});

look();
