import { call } from "./call.js";
import { curve } from "./chart/chart.js";
import { byId, figureOf, fillTable, make } from "./dom.js";

const LOOK_MS = 3_000;
/** The process keeps as much, with longer intervals. */
const KEPT_MS = 3_600_000;

const answers = [];

/** Growth of `field` a second, between two answers; a stream that was declared again counts from 0. */
function rateOf(before, after, name, field) {
  const [from, to] = [before, after].map(({ byName }) => byName.get(name)?.[field]);
  if (from === undefined || to === undefined || after.at <= before.at) return 0;
  return Math.max(0, to - from) / ((after.at - before.at) / 1_000);
}

const sumOf = (list, read) => list.reduce((sum, one) => sum + read(one), 0);

const lagOf = ({ pending, ack_pending }) => pending + ack_pending;

const KINDS = [
  ["Waiting messages", (_before, _after, { consumers }) => sumOf(consumers, lagOf), ""],
  ["Oldest of them", (_b, _a, { consumers }) => Math.max(0, ...consumers.map((one) => one.oldest_seconds)), " s"],
  ["Stored", (b, a, { streams }) => sumOf(streams, ({ name }) => rateOf(b, a, name, "last_seq")), " /s"],
  ["Handled", (b, a, { consumers }) => sumOf(consumers, ({ name }) => rateOf(b, a, name, "handled")), " /s"],
];

/** Consumers of the chosen name, and their streams; of all, the streams that have a consumer. */
function chosenIn({ consumers, streams }, of) {
  const some = consumers.filter(({ name }) => of === "" || name === of);
  const theirs = new Set(some.map(({ stream }) => stream));
  return { consumers: some, streams: streams.filter(({ name }) => theirs.has(name)) };
}

function showCharts() {
  const of = byId("of").value;
  const charts = KINDS.map(([title, read, unit]) => {
    const points = answers.slice(1).map((after, at) => [after.at, read(answers[at], after, chosenIn(after, of))]);
    return curve(title, points, unit);
  });
  byId("charts").replaceChildren(...charts);
}

function showTables(before, after) {
  fillTable(
    byId("consumers"),
    [
      ["Consumer", ({ name }) => name],
      ["Waiting", ({ pending }) => pending],
      ["In work", ({ ack_pending }) => ack_pending],
      ["Redelivered", ({ redelivered }) => redelivered],
      ["Oldest, s", ({ oldest_seconds }) => oldest_seconds],
      ["Handled, /s", ({ name }) => rateOf(before, after, name, "handled")],
      ["Stream", ({ stream }) => stream],
      ["About", ({ about }) => about],
    ],
    after.consumers.toSorted((a, b) => lagOf(b) - lagOf(a) || a.name.localeCompare(b.name)),
  );
  fillTable(
    byId("streams"),
    [
      ["Stream", ({ name }) => name],
      ["Messages", ({ messages }) => messages],
      ["Stored, /s", ({ name }) => rateOf(before, after, name, "last_seq")],
      ["Size", ({ bytes, max_bytes }) => sizeOf(bytes, max_bytes)],
      ["About", ({ about }) => about],
    ],
    after.streams,
  );
}

const MEGABYTE = 1_024 * 1_024;

function sizeOf(bytes, max) {
  const size = `${figureOf(bytes / MEGABYTE)} MB`;
  return max === null ? size : `${size}, ${figureOf((100 * bytes) / max)} %`;
}

function showNames({ consumers }) {
  const select = byId("of");
  const missing = consumers.filter(({ name }) => ![...select.options].some(({ value }) => value === name));
  select.append(...missing.map(({ name }) => make("option", { value: name, textContent: name })));
}

const withNames = (answer) => ({
  ...answer,
  byName: new Map([...answer.streams, ...answer.consumers].map((one) => [one.name, one])),
});

export async function look() {
  const earlier = answers.length === 0 ? await call("history") : [];
  const answer = withNames(await call("overview"));
  answers.push(...earlier.map(withNames));
  // Without one before it, the rates of the first answer are 0.
  const before = answers.at(-1) ?? answer;
  answers.push(...(answers.length === 0 ? [before] : []), answer);
  while (answers[0].at < answer.at - KEPT_MS) answers.shift();
  byId("log-fill").hidden = answer.log_fill === null;
  byId("log-fill").textContent = `The log: ${answer.log_fill}`;
  showNames(answer);
  showCharts();
  showTables(before, answer);
}

/** Looks again and again, while `isShown` says that somebody sees it. */
export function watch({ isShown, seen, failed }) {
  byId("of").addEventListener("change", showCharts);
  setInterval(() => isShown() && document.visibilityState === "visible" && look().then(seen, failed), LOOK_MS);
}
