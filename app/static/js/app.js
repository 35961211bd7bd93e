// Connects the parts of the page.

import { alignWords, longestSentence, sentenceTexts } from "./alignment.js";
import { Alternatives } from "./alternatives.js";
import { ApiError, fetchModels, post, storeKey } from "./api.js";
import { AttentionView } from "./attention.js";
import { find, focusUnlessBusy } from "./dom.js";
import { ErrorMessage } from "./error_message.js";
import { introduce } from "./examples.js";
import { Glossary } from "./glossary.js";
import { TranslationHistory } from "./history.js";
import { Languages } from "./languages.js";
import { Live } from "./live.js";
import { Output } from "./output.js";
import { format, Source } from "./source.js";
import { Suggestion } from "./suggestion.js";
import { length } from "./text.js";
import { Upload } from "./upload.js";

const MODELS_RETRY = 2000; // ms until models that are not ready are requested again
const PATIENCE = 300; // ms until a translation is announced that has not arrived

const TRUNCATED =
  "A sentence is too long for the model, and its end was not translated. Split the sentence.";

const source = new Source();
const output = new Output((words) => source.highlight(words));
const attention = new AttentionView();
const alternatives = new Alternatives((translation) => {
  show(translation);
  align(translation.text);
});
const languages = new Languages(onLanguagesChange);
const glossary = new Glossary(onInput);
const visited = new TranslationHistory((entry) => {
  languages.select(entry);
  source.replace(entry.text);
  showLanguages();
  source.field.focus();
});
const errorMessage = new ErrorMessage(find("source-error"), find("source"));
const suggestion = new Suggestion();
const live = new Live(translate, onTranslation, onError);
let limits = { max_chars: Infinity, max_texts: 1, max_alternatives: 0, max_document_bytes: Infinity };
let formats = []; // suffixes of documents; empty until the models are loaded
let aligning; // the AbortController of the latest align request
let waiting; // the timer of the message that a translation has not arrived yet

new Upload(() => ({ limits, formats, languages: languages.pair, fields: glossary.fields }));

// Translation.

function translate(mode, signal) {
  output.busy = true;
  if (!output.current) waiting ??= setTimeout(() => showStatus("Translating…"), PATIENCE);
  const { fields } = glossary;
  const plain = !Object.keys(fields).length;
  const alternatives = mode === "beam" && plain ? limits.max_alternatives : 0;
  return post("translate", { text: source.text, ...languages.pair, ...fields, mode, alternatives }, signal);
}

function onTranslation(mode, { translations: [best], notices = [], detected_language, took_ms }) {
  stopWaiting();
  errorMessage.clear();
  if (languages.detect(detected_language?.language)) showLanguages();
  show(best);
  find("took").textContent = took_ms < 10 ? "" : `${(took_ms / 1000).toFixed(2)} s`;
  if (mode === "beam") {
    announce(best.text);
    if (languages.modelOf(languages.resolved)) {
      visited.add({ text: source.text, translation: best.text, ...languages.resolved });
      align(best.text);
    } else {
      attention.set([], {}); // the text is in the target language, or its language is unknown
    }
    alternatives.show([best, ...best.alternatives], languages.pair.target);
    note([...notices, ...(best.truncated ? [TRUNCATED] : [])].join("\n"));
  }
}

function onError(mode, error) {
  stopWaiting();
  output.outdate();
  if (error.status === 401) askForKey();
  errorMessage.show(error, () => live.now());
}

function stopWaiting() {
  clearTimeout(waiting);
  waiting = undefined;
  output.busy = false;
  showStatus("");
}

const showStatus = (text) => {
  find("status").textContent = text;
};

function show({ text, score }) {
  aligning?.abort();
  output.show(text, languages.pair.target);
  const pair = languages.resolved;
  const offered = text && languages.modelOf(pair);
  suggestion.offer(offered ? { text: source.text, translation: text, ...pair } : null);
  find("score").textContent = text ? `Ranking score ${score.toFixed(2)}` : "";
}

// Announces a final translation to screen readers.
function announce(text) {
  find("spoken").lang = languages.pair.target;
  find("spoken").textContent = text;
}

// Requests the source words of a final translation.
async function align(translation) {
  aligning?.abort();
  const request = (aligning = new AbortController());
  const { text } = source;
  const pair = languages.resolved;
  try {
    const { pairs } = await post("align", { text, translation, ...pair }, request.signal);
    if (request !== aligning) return;
    output.show(translation, pair.target, alignWords(text, translation, pairs, pair));
    attention.set(sentenceTexts(text, translation, pairs), pair);
    warnAboutLength(longestSentence(pairs));
  } catch (error) {
    if (!(error instanceof ApiError) && error.name !== "AbortError") throw error;
    // The translation stays, without source words and without the attention of an earlier text.
    if (request === aligning && error instanceof ApiError) attention.set([], {});
  }
}

function warnAboutLength(tokens) {
  const trained = languages.model?.limits.longest_trained;
  if (tokens <= trained || find("note").textContent) return;
  note(
    `A sentence has ${tokens} tokens. The model was trained on at most ${trained}, so the translation may be worse. Split the sentence.`,
  );
}

const note = (text) => {
  find("note").textContent = text;
};

function onInput() {
  aligning?.abort();
  errorMessage.clear();
  note("");
  alternatives.disable();
  suggestion.offer(null);
  output.forget();
  find("intro").hidden = !source.blank;
  if (!languages.model) return; // loadModels() calls this function again
  if (source.blank || source.tooLong) {
    live.stop();
    stopWaiting();
    if (source.blank) clear();
    else refuse();
    return;
  }
  live.changed(length(source.text));
}

function refuse() {
  output.outdate();
  const counted = `${format(length(source.text))} characters; the limit is ${format(source.limit)}`;
  errorMessage.show({ status: 422, message: `The text has ${counted}. Shorten the text.` });
}

function clear() {
  output.show("", languages.pair.target);
  alternatives.clear();
  attention.set([], {});
  languages.detect(undefined);
  for (const id of ["score", "spoken", "took"]) find(id).textContent = "";
}

// After a swap, the translation becomes the text, if it is up to date.
function onLanguagesChange(swapped) {
  showLanguages();
  if (swapped && output.current && output.text) source.replace(output.text);
  else onInput();
}

// Models.

async function loadModels() {
  try {
    const response = await fetchModels();
    limits = response.limits;
    source.limit = limits.max_chars;
    suggestion.days = limits.suggestion_days;
    source.refresh();
    glossary.maxLength = limits.max_glossary_chars;
    formats = response.document_formats;
    languages.set(response.models, response.detection);
    find("explorer").hidden = !response.explorer;
    showFormats();
    find("file-start").disabled = !languages.model;
    showLanguages();
    const ready = response.models.some((model) => model.ready);
    showState(ready ? "" : "The model is loading. Translations start as soon as it is ready.");
    if (!ready) setTimeout(loadModels, MODELS_RETRY);
    else if (!source.blank) onInput(); // text entered while the page was loading
  } catch (error) {
    showState(error.message);
    if (error.status === 401) askForKey();
    else setTimeout(loadModels, MODELS_RETRY);
  }
}

function showFormats() {
  const names = formats.map((format) => format.slice(1)).join(", ");
  const size = limits.max_document_bytes / 1e6;
  find("file-input").accept = [...formats, ".tsv", ".tab"].join();
  find("file-hint").textContent =
    `Formats: ${names}, and tables with tabs (tsv, tab). Up to ${size} MB. ` +
    "The server deletes a document as soon as this page has its translation.";
}

function showLanguages() {
  const { source: language } = languages.resolved;
  source.field.lang = language === "auto" ? "" : language;
  const model = languages.model;
  find("model").textContent = model ? `${model.name} · version ${model.version}` : "";
  introduce(languages.offer, (example) => {
    source.replace(example);
    source.field.focus();
  });
}

function showState(text) {
  find("state").textContent = text;
  find("state").hidden = !text;
}

function askForKey() {
  find("key").hidden = false;
  focusUnlessBusy(find("key-value"), find("key"));
}

// Controls.

source.field.addEventListener("compositionstart", () => {
  live.composing = true;
});
source.field.addEventListener("compositionend", () => {
  live.composing = false;
  onInput();
});
source.field.addEventListener("input", onInput);
source.field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (languages.model && !source.blank && !source.tooLong) live.now();
});
find("clear").addEventListener("click", () => {
  source.replace("");
  source.field.focus();
});
find("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(output.text);
    showStatus("Copied.");
  } catch {
    showStatus("The browser does not allow this page to copy. Select the text and copy it.");
  }
});
find("key").addEventListener("submit", (event) => {
  event.preventDefault();
  storeKey(find("key-value").value);
  find("key").hidden = true;
  errorMessage.clear();
  loadModels();
});

source.refresh();
find("intro").hidden = !source.blank;
loadModels();
