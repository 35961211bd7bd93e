// The introduction of the empty page: the languages of the server, and texts to try.

import { find, make } from "./dom.js";
import { nameOf } from "./languages.js";

const EXAMPLES = {
  de: ["Wo kann ich eine Fahrkarte kaufen?", "Der Zug fährt in zehn Minuten ab."],
  en: ["Where can I buy a ticket?", "The train leaves in ten minutes."],
  es: ["¿Dónde puedo comprar un billete?", "El tren sale en diez minutos."],
  fr: ["Où puis-je acheter un billet ?", "Le train part dans dix minutes."],
  it: ["Dove posso comprare un biglietto?", "Il treno parte tra dieci minuti."],
  nl: ["Waar kan ik een kaartje kopen?", "De trein vertrekt over tien minuten."],
  pl: ["Gdzie mogę kupić bilet?", "Pociąg odjeżdża za dziesięć minut."],
  pt: ["Onde posso comprar um bilhete?", "O comboio parte em dez minutos."],
};

const list = new Intl.ListFormat("en");

// Describes the directions of the server; `onChoose` receives the text of a chosen example.
export function introduce({ sources, targetNames }, onChoose) {
  find("offer").textContent = targetNames.length
    ? `This server translates ${list.format(sources.map(nameOf))} to ${list.format(targetNames)}.`
    : "";
  const count = sources.length > 1 ? 1 : 2; // examples of each language
  const texts = sources.flatMap((source) => examplesOf(source, count));
  find("examples-label").hidden = !texts.length;
  find("examples").replaceChildren(
    ...texts.map(({ text, lang }) =>
      make("button", { type: "button", lang, translate: false, onclick: () => onChoose(text) }, text),
    ),
  );
}

const examplesOf = (lang, count) =>
  (EXAMPLES[lang.split("-")[0]] ?? []).slice(0, count).map((text) => ({ text, lang }));
