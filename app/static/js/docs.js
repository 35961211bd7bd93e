// The documentation of the API, made from its description.

import { find, make } from "./dom.js";

const JSON_KIND = "application/json";

function article(spec, path, method, operation) {
  const body = schema(spec, operation.requestBody?.content);
  const good = schema(spec, operation.responses["200"]?.content);
  const errors = Object.entries(operation.responses).filter(([status]) => status >= "400");
  return make(
    "article",
    {},
    make("h2", {}, make("span", { className: "method" }, method.toUpperCase()), " ", make("code", {}, path)),
    make("p", {}, operation.description ?? operation.summary),
    ...part("Request", body && fields(spec, body)),
    ...part("Answer", good && fields(spec, good)),
    ...part("Errors", errors.length && terms(errors.map(([status, { description }]) => [status, description]))),
    ...part("Example", make("pre", { tabIndex: 0 }, curl(spec, path, method, body))),
  );
}

const part = (title, content) => (content ? [make("h3", {}, title), content] : []);

const schema = (spec, content) => content?.[JSON_KIND] && resolve(spec, content[JSON_KIND].schema);

function resolve(spec, found) {
  if (found?.$ref) return spec.components.schemas[found.$ref.split("/").at(-1)];
  if (found?.items?.$ref) return resolve(spec, found.items);
  return found;
}

function fields(spec, { properties, required = [] }) {
  if (!properties) return undefined;
  return terms(
    Object.entries(properties).map(([name, field]) => {
      const needed = required.includes(name) ? "" : "optional";
      const usual = field.default === undefined || field.default === null ? "" : `default ${JSON.stringify(field.default)}`;
      return [name, [kind(field), needed, usual, field.description].filter(Boolean).join(" · ")];
    }),
  );
}

function kind(field) {
  if (field.enum) return field.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (field.anyOf) return field.anyOf.map(kind).filter((one) => one !== "null").join(" or ");
  if (field.$ref) return field.$ref.split("/").at(-1);
  if (field.type === "array") return `list of ${kind(field.items ?? {})}`;
  return field.type ?? "any";
}

const terms = (rows) =>
  make("dl", {}, ...rows.flatMap(([term, text]) => [make("dt", {}, make("code", {}, term)), make("dd", {}, text)]));

function curl(spec, path, method, body) {
  const address = new URL(`.${path}`, location.href);
  if (method === "get") return `curl ${address}`;
  const example = Object.fromEntries(
    Object.entries(body.properties)
      .filter(([name, field]) => field.examples || body.required?.includes(name))
      .map(([name, field]) => [name, field.examples?.[0] ?? "..."]),
  );
  return `curl ${address} --header 'Content-Type: ${JSON_KIND}' \\\n    --data '${JSON.stringify(example)}'`;
}

const spec = await (await fetch("spec")).json();
find("operations").replaceChildren(
  ...Object.entries(spec.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => article(spec, path, method, operation)),
  ),
);
find("operations").setAttribute("aria-busy", "false");
