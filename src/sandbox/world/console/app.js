import { createTimeline } from "./timeline.js";

const MAX_LOG_ROWS = 200;
const byId = (id) => document.getElementById(id);
const timeline = createTimeline({ list: byId("timeline"), empty: byId("empty"), onDelete: remove });

let viewer = "";
let source;
let retry;
let older = "";
// Grows with every fetch, so that an answer that arrives late is dropped.
let fetches = 0;

async function call(method, path, body) {
  const init = { method };
  if (body !== undefined)
    Object.assign(init, { body: JSON.stringify(body), headers: { "content-type": "application/json" } });
  const response = await fetch(path, init);
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

function log(event, id, data) {
  const row = document.createElement("tr");
  for (const text of [new Date().toLocaleTimeString(), event, id, data]) {
    const cell = document.createElement("td");
    cell.textContent = text;
    row.append(cell);
  }
  byId("log").prepend(row);
  while (byId("log").childElementCount > MAX_LOG_ROWS) byId("log").lastElementChild.remove();
}

/** Reads the newest page; what arrives live meanwhile is kept on top of it. */
async function refetch() {
  const mine = ++fetches;
  timeline.beginFetch();
  const page = await call("GET", `/world/timeline?user=${encodeURIComponent(viewer)}`);
  if (mine !== fetches) return;
  timeline.replace(page.drops);
  showPage(page);
}

async function fetchOlder() {
  const mine = fetches;
  const query = new URLSearchParams({ user: viewer, max_id: older });
  const page = await call("GET", `/world/timeline?${query}`);
  if (mine !== fetches) return;
  timeline.add(page.drops);
  showPage(page);
}

function showPage(page) {
  older = page.has_more ? page.next_max_id : "";
  byId("older").hidden = older === "";
  byId("degraded").hidden = !page.degraded;
}

/** new_drop says which drop and when; who wrote it is asked of the world. */
async function showNew(event) {
  const { drop_id, created_at } = JSON.parse(event.data);
  const user = viewer;
  timeline.add([{ drop_id, created_at, author: "" }], "fresh");
  const drop = await call("GET", `/world/drops/${encodeURIComponent(drop_id)}`).catch(() => undefined);
  if (drop !== undefined && user === viewer) timeline.describe(drop);
}

function connect() {
  clearTimeout(retry);
  source?.close();
  showStatus("connecting", "connecting…");
  const current = new EventSource("/events/timeline/home");
  source = current;
  const on = (type, act) =>
    current.addEventListener(type, (event) => {
      if (current !== source) return;
      log(type, event.lastEventId, event.data);
      attempt(() => act(event));
    });
  on("new_drop", showNew);
  on("drop_deleted", (event) => timeline.drop(JSON.parse(event.data).drop_id));
  on("reset", refetch);
  for (const type of ["analysis_completed", "xp_earned"]) on(type, () => undefined);
  current.onopen = () => {
    if (current !== source) return;
    showStatus("live", `live as ${viewer}`);
    log("(open)", "", "");
    // On every opening, not only the first: what was missed may be gone.
    attempt(refetch);
  };
  current.onerror = () => {
    if (current !== source) return;
    showStatus("down", "connection lost, trying again…");
    log("(lost)", "", "");
    // The browser gives up for good after an HTTP error, such as an expired token.
    if (current.readyState === EventSource.CLOSED)
      retry = setTimeout(() => attempt(() => open(viewer)), 2_000 + Math.random() * 2_000);
  };
}

async function open(user) {
  clearTimeout(retry);
  try {
    const session = await call("POST", "/world/session", { user });
    if (user !== viewer) timeline.clear();
    fetches += 1;
    viewer = user;
    showPeople(session.user);
  } catch (error) {
    // The server may be away for a while; another user stays where they are.
    if (user === viewer) retry = setTimeout(() => attempt(() => open(user)), 3_000);
    throw error;
  }
  history.replaceState(null, "", `#${encodeURIComponent(user)}`);
  byId("timeline-title").textContent = `Home timeline of ${user}`;
  connect();
}

function showPeople({ followers, following }) {
  byId("people").textContent = `${followers} followers, follows ${following}`;
}

function remove(dropId) {
  return attempt(() => call("DELETE", `/world/drops/${encodeURIComponent(dropId)}`));
}

function showFaults({ faults }) {
  const broken = faults.map(({ service, method }) => `${service}${method ? `.${method}` : ""}`);
  byId("faults").textContent = broken.length === 0 ? "All upstreams work." : `Broken: ${broken.join(", ")}`;
}

async function post(form, count) {
  const { author, visibility, body } = Object.fromEntries(new FormData(form));
  // Nobody but the viewer is at hand as a recipient.
  const recipients = visibility === "direct" && author !== viewer ? [viewer] : [];
  await call("POST", "/world/drops", { user: author, visibility, recipients, body, count });
}

async function changeFollow(form, method) {
  const following = new FormData(form).get("following");
  const { changed } = await call(method, "/world/follows", { follower_id: viewer, following_id: following });
  if (!changed) throw new Error("Nothing to change.");
  const { user } = await call("GET", `/world/users/${encodeURIComponent(viewer)}`);
  showPeople(user);
  // Backfill and removal notify nobody, so look again when they will be done.
  setTimeout(() => attempt(refetch), 700);
}

function submit(form, act) {
  byId(form).addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => act(event.target, event.submitter?.value));
  });
}

submit("viewer-form", () => open(byId("viewer").value.trim()));
submit("post-form", (form, count) => post(form, Number(count ?? 1)));
submit("follow-form", (form, method) => changeFollow(form, method ?? "POST"));
byId("older").addEventListener("click", () => attempt(fetchOlder));
byId("clear-log").addEventListener("click", () => byId("log").replaceChildren());
byId("break").addEventListener("click", () =>
  attempt(async () => showFaults(await call("POST", "/world/faults", { service: "users", code: "UNAVAILABLE" }))),
);
byId("heal").addEventListener("click", () => attempt(async () => showFaults(await call("DELETE", "/world/faults"))));

attempt(async () => {
  const { users } = await call("GET", "/world/users?limit=400");
  byId("users").replaceChildren(...users.map(({ user_id }) => new Option("", user_id)));
  showFaults(await call("GET", "/world/faults"));
  const wanted = decodeURIComponent(location.hash.slice(1)) || users[0]?.user_id;
  if (wanted === undefined) return;
  byId("viewer").value = wanted;
  document.querySelector("#post-form [name=author]").value =
    users.find(({ user_id }) => user_id === "nova")?.user_id ?? wanted;
  await open(wanted);
});
