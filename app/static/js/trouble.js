// An error beside its field, with a countdown where the server said when to come back.

import { make } from "./dom.js";

export class Trouble {
  constructor(place, field) {
    this.place = place;
    this.field = field;
  }

  clear() {
    clearInterval(this.timer);
    this.place.replaceChildren();
    this.field.removeAttribute("aria-invalid");
  }

  // `again` is called when the time has come, or the button is pressed.
  show(error, again) {
    this.clear();
    this.place.append(make("span", {}, error.message));
    const ours = error.status >= 400 && error.status < 500 && !error.retryAfter;
    if (ours) this.field.setAttribute("aria-invalid", "true");
    else this.#offer(again, error.retryAfter);
  }

  #offer(again, seconds) {
    const retry = () => {
      this.clear();
      again();
    };
    this.place.append(make("button", { type: "button", onclick: retry }, "Try again"));
    if (!seconds) return;
    // Not read out second by second.
    const rest = make("span", { className: "number", "aria-live": "off" });
    this.place.append(rest);
    const tick = () => {
      rest.textContent = `Trying again in ${seconds} s`;
      if (seconds-- <= 0) retry();
    };
    this.timer = setInterval(tick, 1000);
    tick();
  }
}
