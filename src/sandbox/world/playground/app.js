import { createAnalyses } from "./analysis.js";
import { answered } from "./answered.js";
import { createConnection } from "./connection.js";
import { watchDeadLetters } from "./dead-letters.js";
import { createLog } from "./events.js";
import { createFaults } from "./faults.js";
import { createLists } from "./lists.js";
import { createNotifications } from "./notifications.js";
import { createPeople, followText } from "./people.js";
import { COUNTED, createReactions } from "./reactions.js";
import { createStandings } from "./standings.js";
import { createTimeline, titleOf } from "./timeline.js";
import { createCall } from "./world.js";
import { createWriting } from "./writing.js";

// A change hides drops from pages within 2 s, and brings them back within 5 s, mostly much sooner.
const LOOKS_MS = [500, 2_000, 5_000];
const byId = (id) => document.getElementById(id);
const message = byId("message");
const call = createCall(message);
const log = createLog(byId("log"));
const timeline = createTimeline({
  list: byId("timeline"),
  empty: byId("empty"),
  template: byId("drop"),
  onAct: (name, drop) => attempt(() => reactions[name](drop)),
  onChange: (kind, drop, undo) =>
    attempt(() => (kind in COUNTED ? reactions.change(kind, drop, undo) : changeRelation(kind, drop.author, undo))),
});

const ask = (read) => answered(message, read(connection.client()));

const analyses = createAnalyses({
  status: byId("analysis-status"),
  charts: byId("charts"),
  reward: byId("reward"),
  ask,
});

const notifications = createNotifications({ byId, ask, look });

const deadLetters = watchDeadLetters({
  count: byId("dead-count"),
  list: byId("dead"),
  redrive: byId("redrive"),
  call,
  attempt,
  done: showDone,
});

const faults = createFaults({ status: byId("faults"), call });
const pathOf = (kind, dropId) =>
  `/world/${kind}/${encodeURIComponent(dropId)}?${new URLSearchParams({ user: viewer })}`;
const people = createPeople({
  summary: byId("people"),
  hidden: byId("hidden"),
  asking: byId("asking"),
  otherwise: byId("timeline"),
  onChange: (kind, user, undo) => attempt(() => changeRelation(kind, user, undo)),
});
const lists = createLists({ byId, call, attempt, viewer: () => viewer, changeView, changed: lookAgain });
const standings = createStandings({ list: byId("suspended"), call, attempt, changed: showChanged });
const writing = createWriting({
  form: byId("post-form"),
  answering: byId("answering"),
  call,
  done: showDone,
  shown: () => ({ viewer, view }),
  isFollowed: people.follows,
  isBroken: faults.isBroken,
});
const reactions = createReactions({ timeline, writing, call, pathOf, viewer: () => viewer });

let viewer = "";
// home, local, global, list or notifications.
let view = "home";
let [older, looks] = ["", []];
// Grows with every fetch, so that an answer that arrives late is dropped.
let fetches = 0;
let reading = new AbortController();

const showError = (error) => {
  message.textContent = error.message;
};

function showDone(text) {
  byId("done").textContent = text;
}

async function attempt(action) {
  message.textContent = "";
  try {
    await action();
  } catch (error) {
    showError(error);
  }
}

function showStatus(state, text) {
  byId("status").dataset.state = state;
  byId("status-text").textContent = text;
}

/** Returns the name of the shown timeline; undefined if the viewer has no list to show. */
const timelineShown = () => (view === "list" ? lists.timeline() : view);

/** Reads the newest page, or the one below `max_id`. A read that takes long ends with the next one. */
async function fetchPage(max_id) {
  if (view === "notifications") return notifications.show();
  const name = timelineShown();
  if (name === undefined) return timeline.add([]);
  const mine = max_id === undefined ? ++fetches : fetches;
  reading.abort();
  reading = new AbortController();
  const { signal } = reading;
  try {
    const page = await ask((client) => client.page(name, { max_id }, { signal }));
    const views = await call("POST", "/world/views", { user: viewer, drop_ids: page.drop_ids });
    if (mine === fetches) showPage(page, views, max_id === undefined ? mine : undefined);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

function showPage({ items, has_more, next_max_id, degraded }, { drops, ...hidden }, fetch) {
  const reposters = new Map(items.map(({ drop_id, reposted_by }) => [drop_id, reposted_by]));
  const shown = drops.map((drop) => ({ ...drop, reposters: reposters.get(drop.drop_id) }));
  if (fetch === undefined) timeline.add(shown);
  else timeline.replace(shown, fetch);
  older = has_more ? next_max_id : "";
  byId("older").hidden = older === "";
  byId("degraded").hidden = !degraded;
  people.showHidden(hidden);
}

/** Nothing on the stream says that a page has changed after a follow, a mute or a block. */
function lookAgain() {
  stopLooking();
  looks = LOOKS_MS.map((ms) => setTimeout(() => fetchPage().catch(showError), ms));
}

function stopLooking() {
  for (const look of looks) clearTimeout(look);
}

/** new_drop says which drop and when; the rest is asked of the world. */
async function showNew({ drop_id, created_at }) {
  timeline.add([{ drop_id, created_at }], fetches);
  const drop = await look(drop_id);
  if (drop !== undefined) timeline.describe(drop);
}

/** Asks the world for a drop. Resolves to undefined if it does not answer, or another viewer is shown by then. */
async function look(dropId) {
  const user = viewer;
  const drop = await call("GET", pathOf("drops", dropId)).catch(() => undefined);
  return user === viewer ? drop : undefined;
}

/** An edit changes the drop and its reposts. */
async function showEdit({ drop_id }) {
  const drop = await look(drop_id);
  if (drop === undefined) return;
  const { body, revision, attachments } = drop;
  timeline.change(drop_id, () => ({ body, revision, attachments }));
}

const SHOWN_ACTS = {
  new_drop: showNew,
  drop_edited: showEdit,
  drop_deleted: ({ drop_id }) => timeline.drop(drop_id),
  reset: () => fetchPage(),
};

const HOME_ACTS = {
  ...SHOWN_ACTS,
  new_drop: (data) => view === "home" && showNew(data),
  analysis_completed: analyses.completed,
  analysis_failed: analyses.failed,
  xp_earned: analyses.rewarded,
  notification: notifications.changed,
  notifications_read: notifications.changed,
};

const newSession = (user) => call("POST", "/world/session", { user });

const connection = createConnection({
  ...{ session: newSession, read: () => fetchPage(), homeActs: HOME_ACTS, shownActs: SHOWN_ACTS },
  ...{ log, attempt, showStatus, showError },
});

async function open(user) {
  const session = await newSession(user);
  fetches += 1;
  if (user !== viewer) timeline.clear();
  viewer = user;
  people.show(session.user);
  history.replaceState(null, "", `#${encodeURIComponent(user)}`);
  showTitle();
  connection.open(user, session.token);
  await lists.look();
  connection.show(timelineShown());
  await analyses.open();
  await notifications.count();
}

function showTitle() {
  byId("timeline-title").textContent = titleOf(view, viewer);
}

async function changeView(name) {
  view = name;
  fetches += 1;
  showTitle();
  timeline.clear();
  const isTimeline = name !== "notifications";
  byId("timeline").hidden = !isTimeline;
  byId("notifications").hidden = isTimeline;
  byId("lists").hidden = name !== "list";
  byId("older").hidden = true;
  connection.show(timelineShown());
  await fetchPage();
}

async function changeFollow({ following }, method = "POST") {
  const { changed, pending } = await call(method, "/world/follows", { follower_id: viewer, following_id: following });
  if (!changed) throw new Error("Nothing to change.");
  showDone(`${viewer} ${followText(method === "POST", pending)} ${following}.`);
  await showChanged();
}

async function refuseFollowers({ author }) {
  await faults.refuseFollowersOf(author);
  showDone(`Drops of ${author} become dead letters until you heal it: post some.`);
}

async function changeRelation(kind, user, undo) {
  await call(undo ? "DELETE" : "POST", `/world/${kind}`, { user_id: viewer, target_id: user });
  await showChanged();
}

async function showChanged() {
  lookAgain();
  people.show((await call("GET", `/world/users/${encodeURIComponent(viewer)}`)).user);
}

function onSubmit(form, act) {
  byId(form).addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => act(Object.fromEntries(new FormData(event.target)), event.submitter?.value));
  });
}

const onClick = (button, act) => byId(button).addEventListener("click", () => attempt(act));

onSubmit("viewer-form", ({ viewer: user }) => open(user.trim()));
onSubmit("post-form", writing.post);
onSubmit("follow-form", changeFollow);
onSubmit("analysis-form", analyses.order);
onSubmit("refuse-form", refuseFollowers);
onSubmit("standing-form", standings.suspend);
onSubmit("list-form", lists.make);
onSubmit("member-form", lists.change);
byId("views").addEventListener("change", ({ target }) => attempt(() => changeView(target.value)));
onClick("older", () => {
  // A look would take the older drops away.
  stopLooking();
  return fetchPage(older);
});
onClick("clear-log", () => byId("log").replaceChildren());
onClick("break", faults.breakUsers);
onClick("heal", faults.heal);

attempt(async () => {
  const { users } = await call("GET", "/world/users?limit=400");
  byId("users").replaceChildren(...users.map(({ user_id }) => new Option("", user_id)));
  await faults.look();
  await standings.look();
  const wanted = decodeURIComponent(location.hash.slice(1)) || users[0]?.user_id;
  if (wanted === undefined) return;
  byId("viewer").value = wanted;
  document.querySelector("#post-form [name=author]").value = users.some(({ user_id }) => user_id === "nova")
    ? "nova"
    : wanted;
  document.querySelector("#analysis-form [name=did]").value = wanted;
  document.querySelector("#refuse-form [name=author]").value = users.some(({ user_id }) => user_id === "alan")
    ? "alan"
    : wanted;
  deadLetters.look();
  await open(wanted);
});
