import { call } from "./call.js";
import { byId, dateOf, make } from "./dom.js";

const NOT_KNOWN = "not known";

const yesOrNo = (fact) => (fact === undefined ? NOT_KNOWN : fact ? "yes" : "no");

const floorOf = (floor) =>
  floor === undefined || floor < 0 ? "it is not stored whole" : floor === 0 ? "the start" : dateOf(floor);

/** These are the steps in the order in which they decide. */
const STEPS = [
  [
    "Author",
    ({ author, isPulled }) => (author ? `${author}${isPulled ? ", merged when the home is read" : ""}` : NOT_KNOWN),
  ],
  ["Created", ({ createdAt }) => (createdAt === undefined ? NOT_KNOWN : dateOf(createdAt))],
  ["Events in the log", ({ admitted }) => admitted.map(admission).join("; ") || "none; the log keeps seven days"],
  ["All events are applied", ({ isApplied }) => yesOrNo(isApplied)],
  ["Deleted", ({ isTombstoned }) => yesOrNo(isTombstoned)],
  ["Past the retention", ({ isPastRetention }) => yesOrNo(isPastRetention)],
  ["User or author erased", ({ isErased }) => yesOrNo(isErased)],
  ["Listed by PostService", ({ isListed }) => yesOrNo(isListed)],
  ["For this user", ({ isForUser }) => yesOrNo(isForUser)],
  ["The user follows the author", ({ follows }) => yesOrNo(follows)],
  ["Hidden from the user", ({ isHidden }) => yesOrNo(isHidden)],
  ["In the home", ({ score }) => (score === undefined ? "no" : `yes, at ${dateOf(score)}`)],
  ["The home goes back to", ({ floor }) => floorOf(floor)],
];

const admission = ({ event, seq, time }) => `${event} at ${dateOf(time)}, sequence ${seq} of DROPS`;

const STATES = { shown: "good", missing: "bad", unexpected: "bad", unknown: "warn", "under-way": "warn" };

export async function explain({ user, drop, author }) {
  const query = new URLSearchParams({ user, drop, ...(author === "" ? {} : { author }) });
  const answer = await call(`explain?${query}`);
  const verdict = make("p", { className: `verdict ${STATES[answer.verdict] ?? ""}` });
  verdict.append(make("strong", { textContent: answer.verdict }), `: ${answer.why}.`);
  const steps = STEPS.map(([step, say]) =>
    make("li", {}, make("span", { className: "step", textContent: `${step}: ` }), say(answer)),
  );
  byId("explained").replaceChildren(verdict, make("ol", {}, ...steps));
  byId("explained").hidden = false;
}
