// The page: a text on one side, its translation on the other.

import { Model } from "./model.js";
import { Output } from "./output.js";
import { splitSentences } from "./sentences.js";
import { sourceWords, words } from "./words.js";

const PAUSE = 60; // ms without input until the translation starts
const INTERVAL = 200; // ms between two intermediate results
const MAX_REMEMBERED = 500; // sentences
const INSTALLATION = 3000; // ms that the page waits for the service worker

const find = (id) => document.getElementById(id);

const model = new Model(showProgress);
const output = new Output(find("target"), visit, choose);
const remembered = new Map(); // by target language and sentence: { translation, truncated }
let card = null;
let request = 0; // number of the newest request; older ones stop
let shown = 0; // number of the request whose translation is shown
let completed = 0; // number of the request whose translation is shown completely
let visited = null; // word
let composing = false; // whether an input method composes a character
let timer;

// --- Start -----------------------------------------------------------------------------------------

start().catch((error) => {
  find("state").hidden = false;
  find("state").classList.add("failed");
  find("state").textContent = `The model cannot be loaded: ${error.message}`;
});

async function start() {
  find("source").addEventListener("input", changed);
  find("source").addEventListener("compositionstart", () => (composing = true));
  find("source").addEventListener("compositionend", () => ((composing = false), changed()));
  await serviceWorker();
  card = await model.load();
  await model.translate(".", target()); // the first run is slower
  fillLanguages();
  find("model").textContent = card.run ?? "";
  find("license").textContent = `Trained on ${card.training_data.corpus}: ${card.training_data.license}`;
  find("state").hidden = true;
  document.documentElement.dataset.ready = Math.round(performance.now());
  changed();
}

function showProgress(bytes) {
  find("progress").textContent = `${(bytes / 1e6).toFixed(1)} MB`;
}

// Installs the service worker, so that it keeps the files that the model loads. The page waits for
// it on the first visit only, and not for long.
async function serviceWorker() {
  if (!navigator.serviceWorker) return; // the address is not secure
  const controlled = new Promise((resolve) =>
    navigator.serviceWorker.addEventListener("controllerchange", resolve, { once: true }),
  );
  try {
    const { active } = await navigator.serviceWorker.register("service-worker.js", { updateViaCache: "none" });
    if (!active) await Promise.race([controlled, new Promise((resolve) => setTimeout(resolve, INSTALLATION))]);
  } catch {
    find("note").textContent = "This browser does not keep the page for offline use.";
  }
}

// --- Languages -------------------------------------------------------------------------------------

const directions = () => card.directions.map((direction) => direction.split("-"));

// Returns the target language, or null if the model has one direction.
const target = () => (card.targets.length ? find("to").value || card.target : null);

function fillLanguages() {
  const sources = [...new Set(directions().map(([source]) => source))];
  setOptions(find("from"), sources, card.source);
  fillTargets(card.target);
  find("from").addEventListener("change", () => (fillTargets(find("to").value), changed()));
  find("to").addEventListener("change", () => (updateSwap(), changed()));
  find("swap").addEventListener("click", swap);
}

function fillTargets(selected) {
  const targets = directions().filter(([source]) => source === find("from").value);
  setOptions(find("to"), targets.map(([, language]) => language), selected);
  updateSwap();
}

function setOptions(select, languages, selected) {
  select.replaceChildren(...languages.map((language) => new Option(nameOf(language), language)));
  if (languages.includes(selected)) select.value = selected;
  select.disabled = languages.length < 2;
}

function nameOf(language) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(language);
  } catch {
    return language; // no language code
  }
}

function updateSwap() {
  find("swap").disabled = !card.directions.includes(`${find("to").value}-${find("from").value}`);
  find("source").lang = find("from").value;
  find("target").lang = find("to").value;
}

// After a swap, the translation becomes the text, if it is complete and up to date.
function swap() {
  const [source, translation] = [find("from").value, find("target").textContent];
  find("from").value = find("to").value;
  fillTargets(source);
  if (translation && completed === request) find("source").value = translation;
  changed();
}

// --- Translation -----------------------------------------------------------------------------------

find("clear").addEventListener("click", () => {
  find("source").value = "";
  find("source").focus();
  changed();
});
find("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(find("target").textContent);
    find("note").textContent = "Copied";
  } catch {
    find("note").textContent = "The browser does not allow copying.";
  }
});

function changed() {
  request += 1;
  find("echo").textContent = find("source").value;
  find("alternatives").hidden = true;
  find("inside").href = explorerAddress();
  clearTimeout(timer);
  if (card) timer = setTimeout(translateText, PAUSE);
}

// Returns the address of the explorer with the first sentence. A server never sees the part after #.
function explorerAddress() {
  const [sentence] = splitSentences(find("source").value);
  const text = sentence ? { text: sentence.text } : {};
  return `explorer.html#${new URLSearchParams({ tokens: "", direction: `${find("from").value}-${find("to").value}`, ...text })}`;
}

async function translateText() {
  if (composing) return;
  const mine = request;
  const text = find("source").value;
  const sentences = splitSentences(text);
  const done = [];
  let next = 0; // time of the next intermediate result
  for (const sentence of sentences) {
    try {
      done.push({ ...sentence, ...(await translateSentence(sentence.text)) });
    } catch (error) {
      find("note").textContent = `Cannot translate: ${error.message}`;
      return;
    }
    if (mine !== request) return;
    if (performance.now() < next) continue;
    show(text, done);
    next = performance.now() + INTERVAL;
  }
  show(text, done);
  completed = mine;
  find("spoken").textContent = find("target").textContent;
  find("note").textContent = done.some(({ truncated }) => truncated)
    ? `Only the first ${card.limits.max_source_length} tokens of a sentence are translated.`
    : "";
}

// Returns the translation of a sentence, which is computed once.
async function translateSentence(text) {
  const key = `${target()} ${text}`;
  if (!remembered.has(key)) {
    const { text: translation, truncated } = await model.translate(text, target());
    remembered.set(key, { translation, truncated });
    if (remembered.size > MAX_REMEMBERED) remembered.delete(remembered.keys().next().value);
  }
  return remembered.get(key);
}

// Shows the translations of sentences, and the text between them unchanged.
function show(text, sentences) {
  const parts = [];
  let position = 0;
  for (const sentence of sentences) {
    parts.push({ text: text.slice(position, sentence.start) });
    for (const word of words(sentence.translation, find("to").value)) parts.push({ ...word, sentence });
    position = sentence.end;
  }
  shown = request;
  visited = null;
  output.show(parts);
  find("copy").disabled = !sentences.length;
}

// --- Words -----------------------------------------------------------------------------------------

// Highlights the source words of a word of the translation, or none.
async function visit(word) {
  visited = word;
  const sources = word && shown === request ? await sourcesOf(word) : [];
  if (visited !== word || (word && shown !== request)) return;
  const text = find("source").value;
  let position = 0;
  const parts = sources.flatMap(({ start, end }) => {
    const before = text.slice(position, word.sentence.start + start);
    position = word.sentence.start + end;
    const mark = document.createElement("mark");
    mark.textContent = text.slice(word.sentence.start + start, position);
    return [before, mark];
  });
  find("echo").replaceChildren(...parts, text.slice(position));
  find("word").textContent = sources.length ? `${word.text}: ${sources.map((source) => source.text).join(", ")}` : "";
}

async function sourcesOf(word) {
  const { sentence } = word;
  sentence.alignment ??= model.align(sentence.text, sentence.translation, target());
  return sourceWords(await sentence.alignment, word, words(sentence.text, find("from").value));
}

// Offers the alternatives of the sentence of a word.
async function choose({ sentence }) {
  if (shown !== request) return;
  const mine = request;
  const texts = (await model.alternatives(sentence.text, target())).map(({ text }) => text);
  if (mine !== request) return;
  if (!texts.includes(sentence.translation)) texts.unshift(sentence.translation);
  find("sentence").textContent = sentence.text;
  find("choices").replaceChildren(...texts.map((text) => choiceElement(text, sentence)));
  find("alternatives").hidden = false;
}

function choiceElement(text, sentence) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", textContent: text, lang: find("to").value });
  button.setAttribute("aria-pressed", String(text === sentence.translation));
  button.addEventListener("click", () => {
    // The alignment and the place of the sentence belong to the text that is shown now.
    remembered.set(`${target()} ${sentence.text}`, { translation: text, truncated: sentence.truncated });
    request += 1; // a running translation still has the old one
    for (const each of find("choices").querySelectorAll("button"))
      each.setAttribute("aria-pressed", String(each === button));
    translateText();
  });
  const item = document.createElement("li");
  item.append(button);
  return item;
}
