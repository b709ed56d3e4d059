"use strict";

/* Renders /openapi.json. Every text is set as text, never as markup. */

const METHODS = ["get", "post", "put", "patch", "delete"];

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

/* Paragraphs and `code`, which is all that the descriptions use. */
function prose(text) {
  return (text || "").split(/\n{2,}/).filter(Boolean).map((paragraph) =>
    make("p", {}, paragraph.split(/(`[^`]+`)/).map((part) =>
      part.startsWith("`") && part.endsWith("`") && part.length > 2 ? make("code", {}, part.slice(1, -1)) : part)));
}

function resolve(spec, schema) {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.replace("#/", "").split("/").reduce((node, key) => node[key], spec);
}

function refName(schema) {
  return schema && schema.$ref ? schema.$ref.split("/").pop() : null;
}

function typeOf(schema) {
  if (!schema || Object.keys(schema).length === 0) return ["any"];
  const name = refName(schema);
  if (name) return [make("a", { href: "#schema-" + name }, name)];
  const options = schema.anyOf || schema.oneOf;
  if (options) return options.flatMap((option, index) => (index ? [" | ", ...typeOf(option)] : typeOf(option)));
  if (schema.const !== undefined) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" | ")];
  if (schema.type === "array") return ["list of ", ...typeOf(schema.items)];
  if (schema.type === "object" && schema.additionalProperties && schema.additionalProperties !== true) {
    return ["map to ", ...typeOf(schema.additionalProperties)];
  }
  return [schema.format ? `${schema.type} (${schema.format})` : String(schema.type || "any")];
}

function limitsOf(schema) {
  const words = {
    minLength: "least length", maxLength: "most length", minimum: "least", maximum: "most",
    exclusiveMinimum: "more than", minItems: "least items", maxItems: "most items",
  };
  const sources = [schema, ...(schema.anyOf || [])];
  const found = sources.flatMap((source) =>
    Object.keys(words).filter((key) => source[key] !== undefined).map((key) => `${words[key]} ${source[key]}`));
  if (schema.default !== undefined && schema.default !== null) found.push(`default ${JSON.stringify(schema.default)}`);
  return found.join(", ");
}

function example(spec, schema, depth) {
  const node = resolve(spec, schema);
  if (node.example !== undefined) return node.example;
  if (node.default !== undefined) return node.default;
  if (node.const !== undefined) return node.const;
  if (node.enum) return node.enum[0];
  if (node.anyOf || node.oneOf) return example(spec, (node.anyOf || node.oneOf)[0], depth);
  if (node.type === "array") return depth > 3 ? [] : [example(spec, node.items, depth + 1)];
  if (node.type === "object") {
    const shown = Object.entries(node.properties || {}).filter(([name]) => (node.required || []).includes(name));
    return Object.fromEntries(shown.map(([name, value]) => [name, example(spec, value, depth + 1)]));
  }
  return { string: "text", integer: 1, number: 1, boolean: false }[node.type] ?? null;
}

function table(headings, rows) {
  return make("table", {},
    make("thead", {}, make("tr", {}, headings.map((heading) => make("th", { scope: "col" }, heading)))),
    make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell) => make("td", {}, cell))))));
}

function fields(spec, schema) {
  const rows = Object.entries(schema.properties || {}).map(([name, value]) => [
    make("code", { class: (schema.required || []).includes(name) ? "required" : null }, name),
    typeOf(value),
    [...prose(value.description), limitsOf(value)],
  ]);
  return rows.length ? table(["Field", "Type", "Meaning"], rows) : make("p", {}, typeOf(schema));
}

function curl(spec, path, method, operation) {
  const filled = path.replace("{collection}", "default");
  const lines = [`curl${method === "get" ? "" : ` -X ${method.toUpperCase()}`} '${location.origin}${filled}'`];
  const content = (operation.requestBody || {}).content || {};
  if (content["multipart/form-data"]) lines.push("-F 'files=@manual.pdf'");
  if (content["application/json"]) {
    lines.push("-H 'Content-Type: application/json'");
    lines.push(`-d '${JSON.stringify(example(spec, content["application/json"].schema, 0)).replaceAll("'", "'\\''")}'`);
  }
  return lines.join(" \\\n  ");
}

function copyable(text) {
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy by hand";
    }
  });
  return [make("div", { class: "row" }, make("h4", {}, "Example"), button), make("pre", {}, make("code", {}, text))];
}

function renderOperation(spec, path, method, operation) {
  const id = `${method}-${path}`.replace(/[^\w-]+/g, "-");
  const article = make("article", { id },
    make("h3", {}, make("span", { class: `method ${method}` }, method.toUpperCase()),
      make("span", { class: "path" }, path), make("span", { class: "summary" }, operation.summary || "")),
    prose(operation.description));
  const parameters = (operation.parameters || []).map((parameter) => [
    make("code", { class: parameter.required ? "required" : null }, parameter.name),
    [...typeOf(parameter.schema), ` in ${parameter.in}`],
    [...prose(parameter.description), limitsOf(parameter.schema || {})],
  ]);
  if (parameters.length) article.append(make("h4", {}, "Parameters"), table(["Name", "Type", "Meaning"], parameters));
  for (const [kind, content] of Object.entries((operation.requestBody || {}).content || {})) {
    article.append(make("h4", {}, `Body: ${kind}`), fields(spec, resolve(spec, content.schema)));
  }
  article.append(...copyable(curl(spec, path, method, operation)));
  const responses = Object.entries(operation.responses || {}).map(([status, response]) => {
    const json = (response.content || {})["application/json"];
    return [make("code", {}, status), json && json.schema ? typeOf(json.schema) : Object.keys(response.content || {}).join(", "),
      prose(response.description)];
  });
  article.append(make("h4", {}, "Responses"), table(["Status", "Body", "Meaning"], responses));
  return { id, article, label: operation.summary || path, method, words: `${method} ${path} ${operation.summary}`.toLowerCase() };
}

function render(spec) {
  document.title = `${spec.info.title} API`;
  document.getElementById("version").textContent = spec.info.version;
  document.getElementById("description").replaceWith(...prose(spec.info.description));
  const groups = new Map();
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const method of METHODS.filter((name) => methods[name])) {
      const tag = (methods[method].tags || ["Other"])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(renderOperation(spec, path, method, methods[method]));
    }
  }
  const operations = document.getElementById("operations");
  const toc = document.getElementById("toc");
  const entries = [];
  for (const [tag, items] of groups) {
    operations.append(make("h2", { class: "group" }, tag), ...items.map((item) => item.article));
    toc.append(make("h2", {}, tag));
    for (const item of items) {
      const link = make("a", { class: "route", href: "#" + item.id },
        make("span", { class: `method ${item.method}` }, item.method.toUpperCase() + " "), item.label);
      toc.append(link);
      entries.push([item, link]);
    }
  }
  document.getElementById("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const [item, link] of entries) {
      item.article.hidden = link.hidden = !item.words.includes(wanted);
    }
  });
  const schemas = document.getElementById("schemas");
  schemas.append(make("h2", { class: "group" }, "Shapes"));
  for (const [name, schema] of Object.entries((spec.components || {}).schemas || {})) {
    schemas.append(make("article", { id: "schema-" + name },
      make("h3", {}, make("span", { class: "path" }, name)), prose(schema.description), fields(spec, schema)));
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

fetch("/openapi.json")
  .then((response) => {
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.json();
  })
  .then(render)
  .catch((error) => {
    const place = document.getElementById("description");
    if (place) place.textContent = `The description could not be loaded: ${error.message}`;
  });
