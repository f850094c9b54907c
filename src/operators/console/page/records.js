import { call, pathOf } from "./call.js";
import { byId, dateOf, describe, fillTable, make } from "./dom.js";

export async function look() {
  const [authors, erasures, analyses] = await Promise.all(
    ["authors", "erasures", "analyses"].map((path) => call(path)),
  );
  const since = ["Since", (row) => row.since];
  fillTable(
    byId("authors"),
    [["Author", ({ author_id }) => author_id], ["State", ({ state }) => state], ["By", ({ by }) => by], since],
    authors,
    "Every author is pushed.",
  );
  fillTable(
    byId("erasures"),
    [
      ["User", ({ user_id }) => user_id],
      ["Status", ({ status }) => status],
      ["Requested", ({ requested_at }) => requested_at],
      ["Completed", ({ completed_at }) => completed_at],
      ["Not done", ({ steps }) => notDone(steps)],
    ],
    erasures,
    "Nobody is erased.",
  );
  fillTable(
    byId("analyses"),
    [
      ["Analysis", ({ analysis_id }) => analysis_id],
      ["Status", ({ status }) => status],
      since,
      ["Of", ({ did, type }) => `${did ?? "–"} (${type ?? "–"})`],
      ["Error", ({ error }) => error],
    ],
    analyses,
    "No analysis waits, and there is no dead letter of one.",
  );
}

const notDone = (steps) =>
  steps
    .filter(({ done }) => !done)
    .map(({ name, left }) => (left > 0 ? `${name} (${left} left)` : name))
    .join(", ");

const dropsOf = (drops) => `${drops.length} drop${drops.length === 1 ? "" : "s"}`;

/** Says what an audit of one home has shown. */
function auditInSentences({ unknown, undecided, failed, incomplete, differences, lag_ms }) {
  const waited =
    lag_ms >= 1_000 ? [`The oldest event that is not applied has waited for ${Math.round(lag_ms / 1_000)} s.`] : [];
  if (unknown.length > 0) return ["The upstreams know no such user: correct the id."];
  if (failed.length > 0) return [`The home could not be audited: ${failed[0].error}.`];
  if (undecided.length > 0) return ["It cannot be told: events have waited for more than a minute.", ...waited];
  if (incomplete > 0) return ["The home is not stored whole. The next read rebuilds it."];
  if (differences.length === 0) return ["The home is as it must be.", ...waited];
  const { missing, unexpected, wrong_score } = differences[0];
  const places = wrong_score.map(({ drop, score, expected }) => `${drop} (${dateOf(score)}, not ${dateOf(expected)})`);
  return [
    ...(missing.length > 0 ? [`It lacks ${dropsOf(missing)} that it must have: ${missing.join(", ")}.`] : []),
    ...(unexpected.length > 0
      ? [`It has ${dropsOf(unexpected)} that it must not have: ${unexpected.join(", ")}.`]
      : []),
    ...(places.length > 0 ? [`It has ${dropsOf(places)} at a wrong time: ${places.join(", ")}.`] : []),
    ...waited,
  ];
}

const inSentences = (answer) => auditInSentences(answer).map((textContent) => make("p", { textContent }));

export async function lookUp({ kind, id }) {
  const answer = await call(pathOf(kind, id.trim()));
  const shown = kind === "audits" ? inSentences(answer) : describe(answer);
  byId("found").replaceChildren(make("h3", { textContent: id.trim() }), ...shown);
  byId("found").hidden = false;
}
