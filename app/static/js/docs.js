// The API documentation, created from the OpenAPI description.

import { find, make } from "./dom.js";

const JSON_TYPE = "application/json";
const FORM_TYPE = "multipart/form-data";

function article(spec, path, method, operation) {
  const body = schema(spec, operation.requestBody?.content);
  const isForm = FORM_TYPE in (operation.requestBody?.content ?? {});
  const [, { content }] = Object.entries(operation.responses).find(([status]) => status.startsWith("2"));
  const success = schema(spec, content);
  const errors = Object.entries(operation.responses).filter(([status]) => status >= "400");
  return make(
    "article",
    {},
    make("h2", {}, make("span", { className: "method" }, method.toUpperCase()), " ", make("code", {}, path)),
    make("p", {}, operation.description ?? operation.summary),
    ...section("Request", body && fields(spec, body)),
    ...section("Response", success && fields(spec, success)),
    ...section("Errors", errors.length && definitions(errors.map(([status, { description }]) => [status, description]))),
    ...section("Example", make("pre", { tabIndex: 0 }, curl(path, method, body, isForm))),
  );
}

const section = (title, content) => (content ? [make("h3", {}, title), content] : []);

function schema(spec, content) {
  const found = content?.[JSON_TYPE] ?? content?.[FORM_TYPE];
  return found && resolve(spec, found.schema);
}

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
  if (field.format === "binary") return "file";
  if (field.type === "array") return `list of ${type(field.items ?? {})}`;
  return field.type ?? "any";
}

const definitions = (rows) =>
  make("dl", {}, ...rows.flatMap(([term, text]) => [make("dt", {}, make("code", {}, term)), make("dd", {}, text)]));

function curl(path, method, body, isForm) {
  const url = decodeURI(new URL(`.${path}`, location.href));
  if (!body) return method === "get" ? `curl ${url}` : `curl --request ${method.toUpperCase()} ${url}`;
  if (isForm) return `curl ${url} \\\n    --form file=@letter.docx --form source=en --form target=de`;
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
