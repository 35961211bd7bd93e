// Translation of a document by the server, which receives its format but not its name. The server
// deletes the document when this page has the translation, or when the user stops.

import { deleteDocument, documentContent, documentState, pause, sendDocument, sendWithRetry } from "./api.js";

const POLL = 500; // ms between requests for the progress

export class DocumentJob {
  // `options` are {languages, fields}.
  constructor(bytes, suffix, { languages, fields }) {
    this.detects = languages.source === "auto";
    this.form = new FormData();
    this.form.append("file", new Blob([bytes]), `document${suffix}`);
    for (const [name, value] of Object.entries({ ...languages, ...fields })) this.form.append(name, value);
  }

  async run(view, signal) {
    const send = (request) => sendWithRetry(request, (error) => view.wait(error), signal);
    view.progress(0, 0, "Sending the document…");
    const { id } = await send(() => sendDocument(this.form, signal));
    try {
      const state = await this.#finish(id, send, view, signal);
      const content = await send(() => documentContent(id, signal));
      return { content, notices: state.notices, detected: this.detects && state.source };
    } finally {
      deleteDocument(id).catch(() => {}); // the server deletes it later
    }
  }

  // Returns the state of the document when it is done.
  async #finish(id, send, view, signal) {
    for (;;) {
      const state = await send(() => documentState(id, signal));
      if (state.state === "done") return state;
      if (state.error) throw new Error(`${state.error[0].toUpperCase()}${state.error.slice(1)}.`);
      view.progress(state.done, state.sentences, "sentences");
      await pause(POLL, signal);
    }
  }
}
