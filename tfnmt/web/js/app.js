// The page: a text on one side, its translation on the other.

import { Model } from "./model.js";
import { Output } from "./output.js";
import { splitSentences } from "./sentences.js";
import { sourceWords, words } from "./words.js";

const PAUSE = 60; // ms without input until the translation starts
const MAX_REMEMBERED = 500; // sentences

const find = (id) => document.getElementById(id);
const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });

const model = new Model();
const output = new Output(find("target"), visit, choose);
const remembered = new Map(); // by target language and sentence: promises of { text, alignment }
let card = null;
let request = 0; // number of the newest request; older ones stop
let shown = []; // the sentences of the text: { text, start, end, translation, alignment }
let timer;

// --- Start -----------------------------------------------------------------------------------------

start().catch((error) => {
  find("state").hidden = false;
  find("state").classList.add("failed");
  find("state").textContent = `The model cannot be loaded: ${error.message}`;
});

async function start() {
  const begin = performance.now();
  find("source").addEventListener("input", changed);
  await serviceWorker();
  card = await model.load();
  await model.translate(".", target()); // the first run is slower
  fillLanguages();
  find("model").textContent = card.run ?? "";
  find("license").textContent = `Trained on ${card.training_data.corpus}: ${card.training_data.license}`;
  find("state").hidden = true;
  document.documentElement.dataset.ready = Math.round(performance.now() - begin);
  changed();
}

// Installs the service worker first, so that it keeps the files that the model loads.
async function serviceWorker() {
  const workers = navigator.serviceWorker;
  if (!workers) return; // not a secure context
  try {
    await workers.register("service-worker.js");
    await workers.ready;
    if (!workers.controller)
      await new Promise((resolve) => workers.addEventListener("controllerchange", resolve, { once: true }));
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
  select.replaceChildren(...languages.map((language) => new Option(names.of(language), language)));
  if (languages.includes(selected)) select.value = selected;
  select.disabled = languages.length < 2;
}

function updateSwap() {
  find("swap").disabled = !card.directions.includes(`${find("to").value}-${find("from").value}`);
  find("source").lang = find("from").value;
  find("target").lang = find("to").value;
}

function swap() {
  const [source, translation] = [find("from").value, find("target").textContent];
  find("from").value = find("to").value;
  fillTargets(source);
  if (translation) find("source").value = translation;
  changed();
}

// --- Translation -----------------------------------------------------------------------------------

find("clear").addEventListener("click", () => {
  find("source").value = "";
  find("source").focus();
  changed();
});
find("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(find("target").textContent);
  find("note").textContent = "Copied";
});

function changed() {
  request += 1;
  find("echo").textContent = find("source").value;
  find("alternatives").hidden = true;
  clearTimeout(timer);
  if (card) timer = setTimeout(translateText, PAUSE);
}

async function translateText() {
  const mine = request;
  const text = find("source").value;
  const sentences = splitSentences(text);
  for (const sentence of sentences) {
    try {
      Object.assign(sentence, await translateSentence(sentence.text));
    } catch (error) {
      find("note").textContent = `Cannot translate: ${error.message}`;
      return;
    }
    if (mine !== request) return;
    shown = sentences.filter(({ translation }) => translation !== undefined);
    show(text);
  }
  shown = sentences;
  show(text);
  find("spoken").textContent = find("target").textContent;
  find("note").textContent = shown.some(({ truncated }) => truncated)
    ? `Only the first ${card.limits.max_source_length} tokens of a sentence are translated.`
    : "";
  for (const sentence of sentences) {
    if (mine !== request) return;
    await align(sentence);
  }
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

async function align(sentence) {
  const { translation } = sentence;
  const alignment = await model.align(sentence.text, translation, target());
  if (sentence.translation === translation) sentence.alignment = alignment;
}

// Shows the translations of the first sentences, and the text between them unchanged.
function show(text) {
  const parts = [];
  let position = 0;
  for (const sentence of shown) {
    parts.push({ text: text.slice(position, sentence.start) });
    for (const word of words(sentence.translation, find("to").value)) parts.push({ ...word, sentence });
    position = sentence.end;
  }
  output.show(parts);
  find("copy").disabled = !shown.length;
}

// --- Words -----------------------------------------------------------------------------------------

// Highlights the source words of a word of the translation.
function visit(word) {
  const text = find("source").value;
  const sources = word?.sentence.alignment
    ? sourceWords(word.sentence.alignment, word, words(word.sentence.text, find("from").value))
    : [];
  const { start = 0 } = word?.sentence ?? {};
  let position = 0;
  const parts = sources.flatMap((source) => {
    const before = text.slice(position, start + source.start);
    position = start + source.end;
    const mark = document.createElement("mark");
    mark.textContent = source.text;
    return [before, mark];
  });
  find("echo").replaceChildren(...parts, text.slice(position));
  find("word").textContent = sources.length ? `${word.text}: ${sources.map((source) => source.text).join(", ")}` : "";
}

// Offers the alternatives of the sentence of a word.
async function choose({ sentence }) {
  const mine = request;
  const found = await model.alternatives(sentence.text, target());
  if (mine !== request) return;
  const texts = found.map(({ text }) => text);
  if (!texts.includes(sentence.translation)) texts.unshift(sentence.translation);
  find("sentence").textContent = sentence.text;
  find("choices").replaceChildren(...texts.map((text) => choiceElement(text, sentence)));
  find("alternatives").hidden = false;
}

function choiceElement(text, sentence) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", textContent: text, lang: find("to").value });
  button.setAttribute("aria-pressed", String(text === sentence.translation));
  button.addEventListener("click", async () => {
    sentence.translation = text;
    for (const each of find("choices").querySelectorAll("button"))
      each.setAttribute("aria-pressed", String(each === button));
    show(find("source").value);
    await align(sentence);
  });
  const item = document.createElement("li");
  item.append(button);
  return item;
}
