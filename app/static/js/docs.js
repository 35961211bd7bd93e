// The API documentation, created from the OpenAPI description.

import { find, make } from "./dom.js";

const JSON_TYPE = "application/json";

function article(spec, path, method, operation) {
  const body = schema(spec, operation.requestBody?.content);
  const success = schema(spec, operation.responses["200"]?.content);
  const errors = Object.entries(operation.responses).filter(([status]) => status >= "400");
  return make(
    "article",
    {},
    make("h2", {}, make("span", { className: "method" }, method.toUpperCase()), " ", make("code", {}, path)),
    make("p", {}, operation.description ?? operation.summary),
    ...section("Request", body && fields(spec, body)),
    ...section("Response", success && fields(spec, success)),
    ...section("Errors", errors.length && definitions(errors.map(([status, { description }]) => [status, description]))),
    ...section("Example", make("pre", { tabIndex: 0 }, curl(spec, path, method, body))),
  );
}

const section = (title, content) => (content ? [make("h3", {}, title), content] : []);

const schema = (spec, content) => content?.[JSON_TYPE] && resolve(spec, content[JSON_TYPE].schema);

function resolve(spec, found) {
  if (found?.$ref) return spec.components.schemas[found.$ref.split("/").at(-1)];
  if (found?.items?.$ref) return resolve(spec, found.items);
  return found;
}

function fields(spec, { properties, required = [] }) {
  if (!properties) return undefined;
  return definitions(
    Object.entries(properties).map(([name, field]) => {
      const optional = required.includes(name) ? "" : "optional";
      const defaultValue =
        field.default === undefined || field.default === null ? "" : `default ${JSON.stringify(field.default)}`;
      return [name, [type(field), optional, defaultValue, field.description].filter(Boolean).join(" · ")];
    }),
  );
}

function type(field) {
  if (field.enum) return field.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (field.anyOf) return field.anyOf.map(type).filter((name) => name !== "null").join(" or ");
  if (field.$ref) return field.$ref.split("/").at(-1);
  if (field.type === "array") return `list of ${type(field.items ?? {})}`;
  return field.type ?? "any";
}

const definitions = (rows) =>
  make("dl", {}, ...rows.flatMap(([term, text]) => [make("dt", {}, make("code", {}, term)), make("dd", {}, text)]));

function curl(spec, path, method, body) {
  const url = new URL(`.${path}`, location.href);
  if (method === "get") return `curl ${url}`;
  const example = Object.fromEntries(
    Object.entries(body.properties)
      .filter(([name, field]) => field.examples || body.required?.includes(name))
      .map(([name, field]) => [name, field.examples?.[0] ?? "..."]),
  );
  return `curl ${url} --header 'Content-Type: ${JSON_TYPE}' \\\n    --data '${JSON.stringify(example)}'`;
}

const spec = await (await fetch("spec")).json();
find("operations").replaceChildren(
  ...Object.entries(spec.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => article(spec, path, method, operation)),
  ),
);
find("operations").setAttribute("aria-busy", "false");
