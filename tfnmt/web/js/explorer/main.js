// The explorer: one sentence, one state, and the view that is drawn from both.

import { Model } from "../model.js";
import { findView, sectionLink, VIEWS } from "./catalog.js";
import { colorScheme } from "./color.js";
import { controls } from "./controls.js";
import { find, make, replace, reveal } from "./dom.js";
import { bestOf, tokensOf } from "./search.js";
import { Session } from "./session.js";
import { strip } from "./strip.js";
import { count } from "./text.js";
import { SENTENCES, TOUR } from "./tour.js";

const BOS = 1;
const FIRST = 3; // the position that is selected first: the pictures of the very first are empty
const TYPING_PAUSE = 250; // ms without a key before the sentence is translated
const TUNING_PAUSE = 150; // ms before a search with other settings begins

class Explorer {
  constructor(session, code) {
    Object.assign(this, { session, code });
    this.state = {
      view: VIEWS[0].id,
      step: FIRST,
      position: FIRST,
      side: "source",
      heads: {
        encoder: { layer: 0, head: "average" },
        decoder: { layer: 0, head: "average" },
        cross: { layer: Infinity, head: "average" }, // the last layer
      },
      hidden: new Set(), // positions of the source
      prefix: [], // forced ids
      reference: null, // ids of the user's own translation
      node: null, // of the search tree; null is the best one
      tour: null, // number of the tour's step
      ...session.defaults,
    };
    this.search = null;
    this.version = 0; // of the sentence; results of earlier ones are dropped
    this.act = {
      set: (changes) => this.set(changes),
      select: (step) => this.set({ step }),
      tune: (changes) => this.tune(changes),
      force: (step, id, before) => this.force([...(before ?? this.target.slice(0, step)), id]),
      useTranslation: (text) => this.change({ reference: session.encodeTranslation(text), prefix: [] }),
      toggleHidden: (position) => this.toggleHidden(position),
      restartSearch: () => this.restartSearch(),
      stepSearch: () => this.continueSearch(1),
      runSearch: () => this.continueSearch(Infinity),
    };
  }

  // --- The sentence -------------------------------------------------------------------------------

  setText(text) {
    this.state.text = text;
    return this.change({ hidden: new Set(), prefix: [], reference: null, step: FIRST, position: FIRST });
  }

  force(prefix) {
    return this.change({ prefix, reference: null, step: prefix.length - 1 });
  }

  toggleHidden(position) {
    const hidden = new Set(this.state.hidden);
    if (!hidden.delete(position)) hidden.add(position);
    return this.change({ hidden });
  }

  // Changes the state, translates, and draws everything again.
  async change(changes) {
    const version = (this.version += 1);
    const { session, state } = this;
    Object.assign(state, changes, { node: null });
    this.search = null;
    find("strip").setAttribute("aria-busy", "true");
    session.open(state.text, this.language, state.hidden);
    const target = state.reference ?? (await session.translate(this.settings, state.prefix));
    if (version === this.version) await this.show(target, version);
  }

  // Draws a translation.
  async show(target, version = this.version) {
    const tensors = await this.session.inspect(target);
    if (version !== this.version) return;
    Object.assign(this, { target, tensors });
    const { state } = this;
    state.step = Math.min(state.step, target.length - 1);
    state.position = Math.min(state.position, this.session.source.length - 1);
    if (!state.hidden.size) this.original = this.session.decode(target);
    find("strip").removeAttribute("aria-busy");
    if (state.view === "beam" && !this.search) this.startSearch();
    this.draw();
  }

  get settings() {
    const { beamSize, alpha, temperature } = this.state;
    return { beamSize, alpha, temperature };
  }

  get language() {
    return this.session.card.targets?.length ? find("direction").value.split("-").at(-1) : null;
  }

  // --- The search ---------------------------------------------------------------------------------

  // Starts the search of the beam view, and runs it to the end.
  async startSearch() {
    await this.restartSearch();
    if (!this.waits) await this.continueSearch(Infinity);
  }

  async restartSearch() {
    const { version } = this;
    const search = await this.session.start(this.settings, this.state.prefix);
    if (version !== this.version) return;
    this.search = search;
    this.state.node = null;
    this.isSearching = false;
    this.draw();
  }

  async continueSearch(steps) {
    if (!this.search) return; // the sentence changed before the search started
    const { version } = this;
    const { settings } = this.search;
    this.isSearching = true;
    for (let done = 0; done < steps && !this.search.isDone; done += 1) {
      const search = await this.session.step(this.search);
      if (version !== this.version || settings !== this.search?.settings) return;
      this.search = search;
      this.drawView();
    }
    this.isSearching = false;
    await this.finishSearch(version);
  }

  async finishSearch(version) {
    const { search, session } = this;
    this.drawView();
    if (!search.isDone) return;
    const comparison = await session.compare(search, this.settings, this.state.prefix);
    if (version !== this.version || search !== this.search) return;
    this.search = { ...search, comparison };
    await this.show(tokensOf(search, bestOf(search)), version);
  }

  tune(changes) {
    Object.assign(this.state, changes);
    if (this.state.view !== "beam") {
      this.search = null; // it had other settings
      return this.drawView();
    }
    clearTimeout(this.tuning);
    this.tuning = setTimeout(() => this.startSearch(), TUNING_PAUSE);
  }

  // --- Drawing ------------------------------------------------------------------------------------

  set({ heads = {}, ...changes }) {
    Object.assign(this.state, changes);
    Object.assign(this.state.heads, heads);
    this.draw();
  }

  get scene() {
    const { session, state, tensors, target, act, search, original, isSearching } = this;
    const named = (ids) => ids.map((id) => ({ id, piece: session.pieceOf(id) }));
    return {
      state,
      tensors,
      act,
      search,
      original,
      isSearching,
      source: named(session.source),
      target: named(target),
      targetIn: named([BOS, ...target.slice(0, -1)]),
      pieceOf: session.pieceOf,
      decode: session.decode,
      distributionAfter: session.distributionAfter,
      inspectPrefix: (length) => session.inspect(target.slice(0, length)),
    };
  }

  draw() {
    if (!this.tensors) return;
    replace(find("strip-rows"), ...strip(this.scene));
    document.querySelectorAll("#strip-rows .chips").forEach(reveal);
    this.drawNotice();
    this.drawView();
  }

  drawView() {
    const started = performance.now();
    const view = findView(this.state.view);
    if (this.shown !== view.id) this.drawFrame(view);
    const isReady = view.id !== "beam" || this.search;
    replace(find("view"), ...(isReady ? view.show(this.scene) : [make("p", { className: "quiet" }, "Searching …")]));
    performance.measure("view", { start: started, end: performance.now() });
  }

  // Draws what stays while a view is drawn again and again.
  drawFrame(view) {
    this.shown = view.id;
    for (const link of document.querySelectorAll("#views a"))
      if (link.hash === `#${view.id}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    document.querySelector("#views [aria-current]").scrollIntoView({ block: "nearest", inline: "center" });
    find("title").textContent = view.title;
    find("text").textContent = view.text;
    find("controls").replaceChildren(...controls(view.controls ?? [], this.state, this.act));
    find("paper").replaceChildren(
      ...view.paper.map((section) => {
        const { title, address } = sectionLink(section);
        return make("a", { href: address, rel: "noreferrer", target: "_blank" }, title);
      }),
    );
    find("code").replaceChildren(
      ...view.code.map((name) => make("button", { type: "button", onclick: () => this.showCode(name) }, name)),
    );
  }

  // Says how the translation differs from the model's own.
  drawNotice() {
    const { prefix, reference, hidden } = this.state;
    const notices = [
      reference && "This is your own translation, force-decoded.",
      prefix.length && `Forced: ${count(prefix.length, "token")} at the start.`,
      hidden.size && `Hidden: ${count(hidden.size, "source token")}.`,
    ].filter(Boolean);
    const limit = this.session.isTruncated ? [`The explorer reads only the first ${this.session.source.length} tokens.`] : [];
    const undo = make(
      "button",
      { type: "button", onclick: () => this.change({ prefix: [], reference: null, hidden: new Set() }), "data-key": "undo" },
      "Back to the model’s translation",
    );
    replace(find("notice"), make("span", {}, [...limit, ...notices].join(" ")), ...(notices.length ? [undo] : []));
  }

  showCode(name) {
    const { file, line, code } = this.code[name];
    find("code-title").textContent = name;
    find("code-place").textContent = `${file}, line ${line}`;
    find("code-text").textContent = code;
    find("code-dialog").showModal();
  }

  // --- Views and tour -----------------------------------------------------------------------------

  // Opens the view, or the step of the tour, that the address names.
  async open() {
    const [name] = new URLSearchParams(location.hash.slice(1)).keys();
    const number = Number(/^tour-(\d+)$/.exec(name)?.[1]);
    if (TOUR[number - 1]) return this.openTour(number);
    if (find(name)) return undefined; // a place in the page, such as that of the skip link
    this.state.tour = null;
    this.drawTour();
    this.waits = false;
    return this.openView(findView(name)?.id ?? this.state.view);
  }

  openView(view) {
    this.state.view = view;
    if (view === "beam" && !this.search && this.tensors) this.startSearch();
    this.draw();
  }

  // Prepares the explorer for a step of the tour.
  async openTour(number) {
    const step = TOUR[number - 1];
    const { state, session } = this;
    const isNew = state.tour === null;
    state.tour = number;
    state.view = step.view;
    Object.assign(state, session.defaults, { node: null });
    this.shown = null; // the controls show the defaults again
    this.drawTour();
    const sentence = SENTENCES[this.sourceLanguage];
    const isChanged = state.prefix.length || state.hidden.size || state.reference;
    this.waits = step.view === "beam"; // the user steps the search
    if (isNew && sentence && state.text !== sentence) {
      find("source").value = sentence;
      await this.setText(sentence);
    } else if (isChanged) {
      await this.change({ prefix: [], hidden: new Set(), reference: null });
    }
    if (state.tour !== number || !this.tensors) return;
    this.search = null;
    this.set(step.prepare(this.scene));
    if (step.view === "beam") {
      await this.restartSearch();
      await this.continueSearch(2);
    }
    find("tour-title").focus();
  }

  get sourceLanguage() {
    return this.session.card.targets?.length ? find("direction").value.split("-")[0] : this.session.card.source;
  }

  drawTour() {
    const number = this.state.tour;
    document.body.classList.toggle("touring", number !== null);
    find("tour").hidden = number === null;
    find("text").hidden = number !== null;
    if (number === null) return;
    const { title, text, task } = TOUR[number - 1];
    find("tour-number").textContent = `Step ${number} of ${TOUR.length}`;
    find("tour-title").textContent = title;
    find("tour-text").textContent = text;
    find("tour-task").textContent = task;
    find("tour-progress").value = number;
    find("tour-back").href = `#tour-${Math.max(1, number - 1)}`;
    find("tour-back").hidden = number === 1;
    find("tour-next").href = number < TOUR.length ? `#tour-${number + 1}` : `#${this.state.view}`;
    find("tour-next").textContent = number < TOUR.length ? "Next" : "Finish";
    find("tour-end").href = `#${this.state.view}`;
  }
}

// --- Start ----------------------------------------------------------------------------------------

function listViews() {
  const groups = [...new Set(VIEWS.map(({ group }) => group))];
  find("views").append(
    ...groups.map((group) =>
      make(
        "li",
        {},
        make("span", {}, group),
        make(
          "ul",
          {},
          ...VIEWS.filter((view) => view.group === group).map(({ id, title }) => make("li", {}, make("a", { href: `#${id}` }, title))),
        ),
      ),
    ),
  );
}

function listDirections({ targets, directions }) {
  const select = find("direction");
  find("direction-label").hidden = !targets?.length;
  select.append(
    ...(directions ?? []).map((direction) => make("option", { value: direction }, direction.replace("-", " → "))),
  );
}

function showProgress(bytes) {
  find("progress").textContent = `${(bytes / 1e6).toFixed(1)} MB`;
}

async function start() {
  listViews();
  const response = fetch(new URL("../../code.json", import.meta.url)).then((answer) => answer.json());
  const session = await Session.load(new Model(showProgress));
  listDirections(session.card);
  const explorer = new Explorer(session, await response);
  const parameters = new URLSearchParams(location.hash.slice(1));
  const direction = parameters.get("direction");
  if (session.card.directions?.includes(direction)) find("direction").value = direction;
  const text = parameters.get("text") ?? SENTENCES[explorer.sourceLanguage] ?? "";
  find("source").value = text;
  let typing;
  find("source").addEventListener("input", ({ target }) => {
    clearTimeout(typing);
    typing = setTimeout(() => explorer.setText(target.value), TYPING_PAUSE);
  });
  find("direction").addEventListener("change", () => {
    const sentence = Object.values(SENTENCES).includes(find("source").value) && SENTENCES[explorer.sourceLanguage];
    if (sentence) find("source").value = sentence;
    explorer.setText(find("source").value);
  });
  addEventListener("hashchange", () => explorer.open());
  colorScheme.addEventListener("change", () => explorer.draw());
  find("code-close").addEventListener("click", () => find("code-dialog").close());
  await explorer.setText(text);
  addEventListener("unhandledrejection", ({ reason }) => showError(`The explorer cannot continue: ${reason.message}`));
  find("state").hidden = true;
  find("explorer").hidden = false;
  await explorer.open();
}

function showError(message) {
  find("state").hidden = false;
  find("state").textContent = message;
}

start().catch((error) => {
  showError(`The explorer cannot start: ${error.message}`);
  throw error;
});
