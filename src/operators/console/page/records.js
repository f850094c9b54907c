import { call, pathOf } from "./call.js";
import { byId, dateOf, describe, make, titledTable } from "./dom.js";
import { askReason } from "./reason.js";

export async function look() {
  const tables = await call("tables");
  const titled = tables.map(({ title, none, headings, rows }) =>
    titledTable(
      make("h3", { textContent: title }),
      headings.map((heading, index) => [heading, (row) => row[index]]),
      rows,
      `${none[0].toUpperCase()}${none.slice(1)}.`,
    ),
  );
  byId("tables").replaceChildren(...titled.flat());
}

/** An operator sets a standing, or lifts it, and says why. */
export async function setStanding({ subject, standing, hours }) {
  const verb = { active: "Lift", limited: "Limit", suspended: "Suspend" }[standing];
  const why = await askReason({ title: `${verb} ${subject.trim()}?`, verb, isNeeded: true });
  if (why === undefined) return;
  const until = hours === "" || standing === "active" ? 0 : Date.now() + Number(hours) * 3_600_000;
  await call("standings", { subject: subject.trim(), standing, until, why });
  await look();
}

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
