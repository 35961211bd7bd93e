// Translation while typing: at once what is quick, when the typing pauses what is good.

const GAP = 150; // ms between quick requests, at least
const PAUSE = 600; // ms without a key after which the typing has paused
const SHORT = 500; // characters up to which a text is worth a quick request for each key

export class Live {
  // `translate(mode, signal)` asks; `took(mode, answer)` and `failed(mode, error)` are told.
  constructor(translate, took, failed) {
    Object.assign(this, { translate, took, failed });
    this.composing = false;
    this.sent = -Infinity;
  }

  // The text has changed; an input method that is composing has not finished it.
  changed(characters) {
    this.stop();
    if (this.composing) return;
    const wait = Math.max(0, this.sent + GAP - performance.now());
    if (characters <= SHORT) this.quick = setTimeout(() => this.#ask("greedy"), wait);
    this.good = setTimeout(() => this.now(), PAUSE);
  }

  now() {
    this.stop();
    return this.#ask("beam");
  }

  // Nothing that was asked is wanted any more.
  stop() {
    clearTimeout(this.quick);
    clearTimeout(this.good);
    this.request?.abort();
    this.request = undefined;
  }

  async #ask(mode) {
    this.request?.abort();
    const request = (this.request = new AbortController());
    this.sent = performance.now();
    try {
      const answer = await this.translate(mode, request.signal);
      if (request === this.request) this.took(mode, answer);
    } catch (error) {
      if (request === this.request && error.name !== "AbortError") this.failed(mode, error);
    }
  }
}
