import { call, pathOf } from "./call.js";
import { byId, describe, make } from "./dom.js";
import { chosenFilters, offerSeen, onFilter } from "./filters.js";
import { askReason } from "./reason.js";

const counted = (count) => `${count} dead letter${count === 1 ? "" : "s"}`;

/** `attempt` shows the error of an action, and `done` what was done. */
export function createDeadLetters({ attempt, done }) {
  let one;

  const button = (textContent, className, act) => {
    const made = make("button", { type: "button", textContent, className });
    made.addEventListener("click", act);
    return made;
  };

  function card({ error, reason, event, count, first_at, last_at, seqs, author_count, authors }) {
    const times = first_at === last_at ? `at ${first_at}` : `from ${first_at} to ${last_at}`;
    const some = authors.map((author) => `${author.author_id} (${author.count})`).join(", ");
    const by = author_count === 0 ? "" : ` Authors: ${some}${author_count > authors.length ? ", …" : ""}.`;
    const acts = [
      button(`Show ${seqs[0]}`, "quiet", () => attempt(() => show(seqs[0]))),
      button(`Redrive ${seqs.length}`, "", () => attempt(() => act("redrive", seqs))),
      button(`Remove ${seqs.length}…`, "danger", () => attempt(() => act("remove", seqs))),
    ];
    return make(
      "li",
      { className: "card" },
      make("p", { className: "error", textContent: `${count} × ${error}` }),
      make("p", { className: "muted", textContent: `${reason} ${event}, ${times}.${by}` }),
      make("div", { className: "acts" }, ...acts),
    );
  }

  async function look() {
    const filters = chosenFilters();
    const groups = await call(`dead-letters?${filters}`);
    offerSeen(groups);
    const count = groups.reduce((sum, group) => sum + group.count, 0);
    const none = filters.size === 0 ? "There is no dead letter." : "No dead letter is like that.";
    byId("dead-count").textContent = count === 0 ? none : `${counted(count)}, by error.`;
    byId("groups").replaceChildren(...groups.map(card));
  }

  async function show(seq) {
    const { headers, body, body_encoding, error, subject, ...summary } = await call(pathOf("dead-letters", seq));
    one = seq;
    byId("one-title").textContent = `Dead letter ${seq} of ${subject}`;
    byId("one-error").textContent = error;
    byId("one-headers").replaceChildren(...describe({ stored_at: summary.stored_at, ...headers })[0].childNodes);
    byId("one-body").textContent = body_encoding === "json" ? JSON.stringify(body, null, 2) : String(body ?? "omitted");
    byId("one").hidden = false;
    byId("one-title").focus();
  }

  async function act(action, seqs) {
    const isRemoval = action === "remove";
    const verb = isRemoval ? "Remove" : "Redrive";
    const title = `${verb} ${counted(seqs.length)}${isRemoval ? " for good" : ""}?`;
    const why = await askReason({ title, verb, isNeeded: isRemoval });
    if (why === undefined) return;
    const outcome = await call(`dead-letters/${action}`, { seqs, ...(why === "" ? {} : { why }) });
    done(outcomeAsText(outcome));
    if (seqs.includes(one)) byId("one").hidden = true;
    await look();
    // The button that was pressed is gone.
    byId("dead-letters-title").focus();
  }

  byId("refresh").addEventListener("click", () => attempt(look));
  onFilter(() => attempt(look));
  byId("one-redrive").addEventListener("click", () => attempt(() => act("redrive", [one])));
  byId("one-remove").addEventListener("click", () => attempt(() => act("remove", [one])));
  byId("open-one").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => show(Number(event.target.elements.seq.value)));
  });
  return { look };
}

/** Counts the lists of an answer, and gives the first cause of each that did not succeed. */
function outcomeAsText({ running, counts = {}, ...lists }) {
  const said = Object.entries(lists).flatMap(([name, list]) => {
    const count = counts[name] ?? list.length;
    if (count === 0 && name !== "redriven" && name !== "removed") return [];
    const why = list[0]?.why;
    return `${count} ${name}${why === undefined ? "" : ` (${why})`}`;
  });
  return `${said.join(", ")}.${running ? " The rest is under way." : ""}`;
}
