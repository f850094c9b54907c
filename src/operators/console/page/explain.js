import { call } from "./call.js";
import { byId, dateOf, make } from "./dom.js";

const NOT_KNOWN = "not known";

const yesOrNo = (fact) => (fact === undefined ? NOT_KNOWN : fact ? "yes" : "no");

const floorOf = (floor) =>
  floor === undefined || floor < 0 ? "it is not stored whole" : floor === 0 ? "the start" : dateOf(floor);

/** The steps, in the order in which they decide. */
const STEPS = [
  [
    "Author",
    ({ author, is_pulled }) => (author ? `${author}${is_pulled ? ", merged when the home is read" : ""}` : NOT_KNOWN),
  ],
  ["Created", ({ created_at }) => (created_at === undefined ? NOT_KNOWN : dateOf(created_at))],
  ["Events in the log", ({ admitted }) => admitted.map(admission).join("; ") || "none; the log keeps seven days"],
  ["All events are applied", ({ is_applied }) => yesOrNo(is_applied)],
  ["Deleted", ({ is_tombstoned }) => yesOrNo(is_tombstoned)],
  ["Past the retention", ({ is_past_retention }) => yesOrNo(is_past_retention)],
  ["User or author erased", ({ is_erased }) => yesOrNo(is_erased)],
  ["Listed by PostService", ({ is_listed }) => yesOrNo(is_listed)],
  ["For this user", ({ is_for_user }) => yesOrNo(is_for_user)],
  ["The user follows the author", ({ follows }) => yesOrNo(follows)],
  ["Hidden from the user", ({ is_hidden }) => yesOrNo(is_hidden)],
  ["A reply to somebody not followed", ({ is_reply_to_others }) => yesOrNo(is_reply_to_others)],
  ["In the home", ({ score }) => (score === undefined ? "no" : `yes, at ${dateOf(score)}`)],
  ["The home goes back to", ({ floor }) => floorOf(floor)],
];

const admission = ({ event, seq, time }) => `${event} at ${dateOf(time)}, sequence ${seq} of DROPS`;

/** Each verdict in words, and its colour. */
const VERDICTS = {
  shown: ["It is shown", "good"],
  "left-out": ["It is left out", ""],
  "not-stored": ["The home is not stored", ""],
  older: ["It is older than the home", ""],
  "under-way": ["It is under way", "warn"],
  missing: ["It is missing", "bad"],
  unexpected: ["It should not be there", "bad"],
  unknown: ["Not known", "warn"],
};

export async function explain({ user, drop, author }) {
  const query = new URLSearchParams({ user, drop, ...(author === "" ? {} : { author }) });
  const answer = await call(`explain?${query}`);
  const [words, colour] = VERDICTS[answer.verdict];
  const verdict = make("p", { className: `verdict ${colour}` });
  verdict.append(make("strong", { textContent: words }), `: ${answer.why}.`);
  const steps = STEPS.map(([step, say]) =>
    make("li", {}, make("span", { className: "step", textContent: `${step}: ` }), say(answer)),
  );
  byId("explained").replaceChildren(verdict, make("ol", {}, ...steps));
  byId("explained").hidden = false;
}
