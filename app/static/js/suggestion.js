// A form to correct the translation, if the server keeps corrections.

import { ApiError, post } from "./api.js";
import { find } from "./dom.js";
import { ErrorMessage } from "./error_message.js";

export class Suggestion {
  constructor() {
    this.field = find("suggestion-text");
    this.errorMessage = new ErrorMessage(find("suggestion-error"), this.field);
    this.field.addEventListener("input", () => this.#refresh());
    find("suggestion-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
  }

  // Shows the form if the server keeps corrections for a number of days.
  set days(days) {
    find("suggestion").hidden = !days;
    find("suggestion-hint").textContent =
      `The server keeps the text, the translation and your suggestion for ${days} days, to improve the model.`;
  }

  // Offers to correct a translation: {text, translation, source, target}, or null for none. A
  // suggestion that the user has begun stays until the text changes.
  offer(pair) {
    const edited = this.field.value !== this.initial;
    if (edited && this.pair && this.pair.text === pair?.text) return;
    this.pair = pair;
    this.field.value = pair?.translation ?? "";
    this.initial = this.sent = this.field.value; // with the line breaks of a field
    this.field.lang = pair?.target ?? "";
    find("suggestion-form").hidden = !pair;
    find("suggestion-empty").hidden = Boolean(pair);
    this.#refresh();
  }

  #refresh() {
    const { value } = this.field;
    this.errorMessage.clear();
    find("suggestion-status").textContent = "";
    find("suggestion-send").disabled = !value.trim() || [this.initial, this.sent].includes(value);
  }

  async #send() {
    const { pair } = this;
    const correction = this.field.value;
    try {
      await post("suggestions", { ...pair, correction });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (pair === this.pair) this.errorMessage.show(error, () => this.#send());
      return;
    }
    if (pair !== this.pair) return; // the text has changed
    this.sent = correction;
    this.field.focus(); // a disabled button loses the focus
    this.#refresh();
    find("suggestion-status").textContent = "Thank you. The suggestion is saved.";
  }
}
