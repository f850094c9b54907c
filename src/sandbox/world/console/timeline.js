const MAX_SHOWN = 1_000;
const MAX_DELETED = 5_000;

/** The list of drops: newest first, each once, and no deleted one again. */
export function createTimeline({ list, empty, onDelete }) {
  const shown = new Map();
  const deleted = new Set();
  // Drops that arrived live during the present fetch, whose answer may lack them.
  let arrived = [];

  const order = (a, b) => b.created_at - a.created_at || (a.drop_id < b.drop_id ? 1 : -1);

  function insert(drop, mark) {
    if (deleted.has(drop.drop_id) || drop.deleted) return;
    const before = shown.get(drop.drop_id);
    if (before !== undefined) return;
    const row = createRow(drop, onDelete);
    if (mark) row.classList.add(mark);
    const entry = { drop, row };
    shown.set(drop.drop_id, entry);
    const next = [...list.children].find((other) => order(drop, shown.get(other.dataset.id).drop) < 0);
    list.insertBefore(row, next ?? null);
    while (mark && shown.size > MAX_SHOWN) forget(list.lastElementChild.dataset.id);
    empty.hidden = shown.size > 0;
  }

  function forget(dropId) {
    shown.get(dropId)?.row.remove();
    shown.delete(dropId);
    empty.hidden = shown.size > 0;
  }

  return {
    add(drops, mark) {
      if (mark) arrived = [...arrived, ...drops].slice(-MAX_SHOWN);
      for (const drop of drops) insert(drop, mark);
    },
    /** Fills in what the event did not say. */
    describe(drop) {
      const entry = shown.get(drop.drop_id);
      if (entry) {
        entry.row.querySelector(".author").textContent = authorOf(drop);
        entry.row.querySelector(".body").textContent = drop.body;
      }
      for (const other of arrived) if (other.drop_id === drop.drop_id) Object.assign(other, drop);
    },
    drop(dropId) {
      deleted.add(dropId);
      if (deleted.size > MAX_DELETED) deleted.delete(deleted.values().next().value);
      forget(dropId);
    },
    beginFetch() {
      arrived = [];
    },
    replace(drops) {
      this.clear();
      for (const drop of [...drops, ...arrived]) insert(drop);
      empty.hidden = shown.size > 0;
    },
    clear() {
      shown.clear();
      list.replaceChildren();
    },
  };
}

function authorOf({ author }) {
  return author || "(unknown author)";
}

function createRow(drop, onDelete) {
  const row = document.createElement("li");
  row.dataset.id = drop.drop_id;
  const author = document.createElement("span");
  author.className = "author";
  author.textContent = authorOf(drop);
  const time = document.createElement("time");
  const date = new Date(drop.created_at ?? 0);
  time.dateTime = date.toISOString();
  time.textContent = date.toLocaleString();
  const body = document.createElement("p");
  body.className = "body";
  body.textContent = drop.body ?? "";
  const id = document.createElement("span");
  id.className = "id";
  id.textContent = drop.visibility ? `${drop.drop_id} · ${drop.visibility}` : drop.drop_id;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Delete";
  button.setAttribute("aria-label", `Delete drop ${drop.drop_id}`);
  button.addEventListener("click", () => onDelete(drop.drop_id));
  row.append(author, time, button, body, id);
  return row;
}
