export const byId = (id) => document.getElementById(id);

export function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export const figureOf = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });

/** Fills a region with a table. A column has a title, the value of a row, and is right-aligned if that is a number. */
export function fillTable(region, columns, rows, none = "None.") {
  // A table that is too wide is scrolled by keyboard, too.
  region.tabIndex = 0;
  if (rows.length === 0) return region.replaceChildren(make("p", { className: "muted", textContent: none }));
  const head = make("tr", {}, ...columns.map(([title]) => make("th", { scope: "col", textContent: title })));
  const body = rows.map((row) => make("tr", {}, ...columns.map(([, read]) => cell(read(row)))));
  region.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

/** Returns a title, and a region with a table. */
export function titledTable(title, ...table) {
  const region = make("section", { className: "scroll", ariaLabel: title.textContent });
  fillTable(region, ...table);
  return [title, region];
}

function cell(value) {
  if (typeof value === "number") return make("td", { className: "figure", textContent: figureOf(value) });
  return make("td", { textContent: value ?? "–" });
}

/** Shows a JSON object: its plain fields first, then a table for each list of objects. */
export function describe(value) {
  const fields = Object.entries(value);
  const isTable = ([, held]) => Array.isArray(held) && held.length > 0 && typeof held[0] === "object";
  const plain = make("dl");
  for (const [name, held] of fields.filter((field) => !isTable(field)))
    plain.append(make("dt", { textContent: titleOf(name) }), make("dd", { textContent: textOf(name, held) }));
  const tables = fields.filter(isTable).flatMap(([name, held]) => {
    const names = [...new Set(held.flatMap((row) => Object.keys(row)))];
    const columns = names.map((column) => [titleOf(column), (row) => textOf(column, row[column])]);
    return titledTable(make("h4", { textContent: titleOf(name) }), columns, held);
  });
  return [plain, ...tables];
}

const titleOf = (name) => name.replaceAll("_", " ");

function textOf(name, value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "number" && /(_at|time)$/.test(name) && value > 0) return dateOf(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.join(", ") || "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export const dateOf = (ms) => new Date(ms).toISOString();
