// Translation while typing: greedy search at once, beam search when the user pauses.

const GREEDY_INTERVAL = 150; // minimum ms between greedy requests
const PAUSE = 600; // ms without input until beam search starts
const MAX_GREEDY_LENGTH = 500; // longer texts are not translated for each key

export class Live {
  // `translate(mode, signal)` sends a request. `onTranslation(mode, response)` or
  // `onError(mode, error)` receives its result.
  constructor(translate, onTranslation, onError) {
    Object.assign(this, { translate, onTranslation, onError });
    this.composing = false;
    this.lastRequest = -Infinity;
  }

  // Schedules requests for a changed text, unless an input method is composing.
  changed(characters) {
    this.stop();
    if (this.composing) return;
    const wait = Math.max(0, this.lastRequest + GREEDY_INTERVAL - performance.now());
    if (characters <= MAX_GREEDY_LENGTH) {
      this.greedyTimer = setTimeout(() => this.#request("greedy"), wait);
    }
    this.beamTimer = setTimeout(() => this.now(), PAUSE);
  }

  now() {
    this.stop();
    return this.#request("beam");
  }

  // Cancels scheduled and running requests.
  stop() {
    clearTimeout(this.greedyTimer);
    clearTimeout(this.beamTimer);
    this.controller?.abort();
    this.controller = undefined;
  }

  async #request(mode) {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    this.lastRequest = performance.now();
    try {
      const response = await this.translate(mode, controller.signal);
      if (controller === this.controller) this.onTranslation(mode, response);
    } catch (error) {
      if (controller === this.controller && error.name !== "AbortError") this.onError(mode, error);
    }
  }
}
