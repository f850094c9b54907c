import { createAnalyses } from "./analysis.js";
import { createTimeline } from "./timeline.js";

const MAX_LOG_ROWS = 200;
const byId = (id) => document.getElementById(id);
const timeline = createTimeline({
  list: byId("timeline"),
  empty: byId("empty"),
  template: byId("drop"),
  onDelete: (dropId) => attempt(() => call("DELETE", `/world/drops/${encodeURIComponent(dropId)}`)),
});

const analyses = createAnalyses({
  status: byId("analysis-status"),
  charts: byId("charts"),
  reward: byId("reward"),
  call,
});

let viewer = "";
let source;
let retry;
let older = "";
// Grows with every fetch, so that an answer that arrives late is dropped.
let fetches = 0;

async function call(method, path, body) {
  const json = { body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const response = await fetch(path, { method, ...(body === undefined ? {} : json) });
  const answer = response.status === 204 ? {} : await response.json();
  if (!response.ok) throw new Error(answer.detail ?? `status ${response.status}`);
  return answer;
}

async function attempt(action) {
  byId("message").textContent = "";
  try {
    await action();
  } catch (error) {
    byId("message").textContent = error.message;
  }
}

function showStatus(state, text) {
  byId("status").dataset.state = state;
  byId("status-text").textContent = text;
}

function log(...texts) {
  const row = byId("log").insertRow(0);
  for (const text of [new Date().toLocaleTimeString(), ...texts]) row.insertCell().textContent = text;
  while (byId("log").rows.length > MAX_LOG_ROWS) byId("log").deleteRow(-1);
}

/** Reads the newest page, or the one below `maxId`. */
async function fetchPage(maxId = "") {
  const mine = maxId === "" ? ++fetches : fetches;
  const page = await call("GET", `/world/timeline?${new URLSearchParams({ user: viewer, max_id: maxId })}`);
  if (mine !== fetches) return;
  if (maxId === "") timeline.replace(page.drops, mine);
  else timeline.add(page.drops);
  older = page.has_more ? page.next_max_id : "";
  byId("older").hidden = older === "";
  byId("degraded").hidden = !page.degraded;
}

/** new_drop says which drop and when; who wrote it is asked of the world. */
async function showNew(event) {
  const { drop_id, created_at } = JSON.parse(event.data);
  const user = viewer;
  timeline.add([{ drop_id, created_at }], fetches);
  const drop = await call("GET", `/world/drops/${encodeURIComponent(drop_id)}`).catch(() => undefined);
  if (drop !== undefined && user === viewer) timeline.describe(drop);
}

function connect() {
  clearTimeout(retry);
  source?.close();
  showStatus("connecting", "connecting…");
  const current = new EventSource("/events/timeline/home");
  source = current;
  const on = (type, act = () => undefined) =>
    current.addEventListener(type, (event) => {
      if (current !== source) return;
      log(type, event.lastEventId ?? "", event.data ?? "");
      attempt(() => act(event));
    });
  on("new_drop", showNew);
  on("drop_deleted", (event) => timeline.drop(JSON.parse(event.data).drop_id));
  on("reset", () => fetchPage());
  on("analysis_completed", (event) => analyses.completed(JSON.parse(event.data)));
  on("analysis_failed", (event) => analyses.failed(JSON.parse(event.data)));
  on("xp_earned", (event) => analyses.rewarded(JSON.parse(event.data)));
  // On every opening, not only the first: what was missed may be gone.
  on("open", () => {
    showStatus("live", `live as ${viewer}`);
    return fetchPage();
  });
  on("error", () => {
    showStatus("down", "connection lost, trying again…");
    // The browser gives up for good after an HTTP error, such as an expired token.
    if (current.readyState === EventSource.CLOSED) openLater(2_000 + Math.random() * 2_000);
  });
}

function openLater(ms) {
  retry = setTimeout(() => attempt(() => open(viewer)), ms);
}

async function open(user) {
  clearTimeout(retry);
  try {
    const session = await call("POST", "/world/session", { user });
    fetches += 1;
    if (user !== viewer) timeline.replace([]);
    viewer = user;
    showPeople(session.user);
  } catch (error) {
    // The server may be away for a while; another user stays where they are.
    if (user === viewer) openLater(3_000);
    throw error;
  }
  history.replaceState(null, "", `#${encodeURIComponent(user)}`);
  byId("timeline-title").textContent = `Home timeline of ${user}`;
  connect();
  await analyses.open();
}

function showPeople({ followers, following }) {
  byId("people").textContent = `${followers} followers, follows ${following}`;
}

async function changeFaults(method, body) {
  const { faults } = await call(method, "/world/faults", body);
  const broken = faults.map(({ service, method }) => `${service}${method ? `.${method}` : ""}`);
  byId("faults").textContent = broken.length === 0 ? "All upstreams work." : `Broken: ${broken.join(", ")}`;
}

async function post({ author, visibility, body }, count) {
  // Nobody but the viewer is at hand as a recipient.
  const recipients = visibility === "direct" && author !== viewer ? [viewer] : [];
  await call("POST", "/world/drops", { user: author, visibility, recipients, body, count: Number(count ?? 1) });
}

async function changeFollow({ following }, method = "POST") {
  const { changed } = await call(method, "/world/follows", { follower_id: viewer, following_id: following });
  if (!changed) throw new Error("Nothing to change.");
  showPeople((await call("GET", `/world/users/${encodeURIComponent(viewer)}`)).user);
  // Backfill and removal notify nobody, so look again when they will be done.
  setTimeout(() => attempt(() => fetchPage()), 700);
}

function onSubmit(form, act) {
  byId(form).addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => act(Object.fromEntries(new FormData(event.target)), event.submitter?.value));
  });
}

const onClick = (button, act) => byId(button).addEventListener("click", () => attempt(act));

onSubmit("viewer-form", ({ viewer: user }) => open(user.trim()));
onSubmit("post-form", post);
onSubmit("follow-form", changeFollow);
onSubmit("analysis-form", analyses.ask);
onClick("older", () => fetchPage(older));
onClick("clear-log", () => byId("log").replaceChildren());
onClick("break", () => changeFaults("POST", { service: "users", code: "UNAVAILABLE" }));
onClick("heal", () => changeFaults("DELETE"));

attempt(async () => {
  const { users } = await call("GET", "/world/users?limit=400");
  byId("users").replaceChildren(...users.map(({ user_id }) => new Option("", user_id)));
  await changeFaults("GET");
  const wanted = decodeURIComponent(location.hash.slice(1)) || users[0]?.user_id;
  if (wanted === undefined) return;
  byId("viewer").value = wanted;
  document.querySelector("#post-form [name=author]").value = users.some(({ user_id }) => user_id === "nova")
    ? "nova"
    : wanted;
  document.querySelector("#analysis-form [name=did]").value = wanted;
  await open(wanted);
});
