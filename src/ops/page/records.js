import { call, pathOf } from "./call.js";
import { byId, describe, fillTable, make } from "./dom.js";

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

export async function lookUp({ kind, id }) {
  const answer = await call(pathOf(kind, id.trim()));
  byId("found").replaceChildren(make("h3", { textContent: id.trim() }), ...describe(answer));
  byId("found").hidden = false;
}
