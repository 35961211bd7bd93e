// An error message next to its field, with a retry button or a countdown to the next attempt.

import { make } from "./dom.js";

export class ErrorMessage {
  constructor(element, field) {
    this.element = element;
    this.field = field;
  }

  clear() {
    clearInterval(this.timer);
    this.element.replaceChildren();
    this.field.removeAttribute("aria-invalid");
  }

  // Shows an error. `retry` is called by the button or at the end of the countdown.
  show(error, retry) {
    this.clear();
    this.element.append(make("span", {}, error.message));
    const invalidInput = error.status >= 400 && error.status < 500 && !error.retryAfter;
    if (invalidInput) this.field.setAttribute("aria-invalid", "true");
    else this.#offerRetry(retry, error.retryAfter);
  }

  #offerRetry(retry, seconds) {
    const clearAndRetry = () => {
      this.clear();
      retry();
    };
    this.element.append(make("button", { type: "button", onclick: clearAndRetry }, "Try again"));
    if (!seconds) return;
    // aria-live off: screen readers must not read every second.
    const countdown = make("span", { className: "number", "aria-live": "off" });
    this.element.append(countdown);
    const tick = () => {
      countdown.textContent = `Trying again in ${seconds} s`;
      if (seconds-- <= 0) clearAndRetry();
    };
    this.timer = setInterval(tick, 1000);
    tick();
  }
}
