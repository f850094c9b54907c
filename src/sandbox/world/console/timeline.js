const MAX_SHOWN = 1_000;
const MAX_DELETED = 5_000;

/** Shows the newest drop first, each once, and no deleted one again. */
export function createTimeline({ list, empty, template, onDelete }) {
  const shown = new Map();
  const deleted = new Set();

  const isAfter = (a, b) => a.created_at > b.created_at || (a.created_at === b.created_at && a.drop_id > b.drop_id);

  function forget(dropId) {
    const row = shown.get(dropId)?.row;
    // The keyboard goes on beside a row that vanishes, and not at the top of the page.
    if (row?.contains(document.activeElement))
      ((row.nextElementSibling ?? row.previousElementSibling)?.querySelector("button") ?? list).focus();
    row?.remove();
    shown.delete(dropId);
    empty.hidden = shown.size > 0;
  }

  function describe({ drop_id, author, body, visibility }) {
    const row = shown.get(drop_id)?.row;
    if (!row) return;
    row.querySelector(".author").textContent = author || "(unknown author)";
    row.querySelector(".body").textContent = body ?? "";
    row.querySelector(".id").textContent = visibility ? `${drop_id} · ${visibility}` : drop_id;
  }

  function insert(drop, liveSince) {
    if (deleted.has(drop.drop_id) || drop.deleted || shown.has(drop.drop_id)) return;
    const row = template.content.firstElementChild.cloneNode(true);
    row.dataset.id = drop.drop_id;
    row.classList.toggle("fresh", liveSince !== undefined);
    const time = row.querySelector("time");
    const date = new Date(drop.created_at ?? 0);
    time.dateTime = date.toISOString();
    time.textContent = date.toLocaleString();
    const button = row.querySelector("button");
    button.setAttribute("aria-label", `Delete drop ${drop.drop_id}`);
    button.addEventListener("click", () => onDelete(drop.drop_id));
    const next = [...list.children].find((other) => isAfter(drop, shown.get(other.dataset.id).drop));
    list.insertBefore(row, next ?? null);
    shown.set(drop.drop_id, { drop, row, liveSince });
    describe(drop);
    while (liveSince !== undefined && shown.size > MAX_SHOWN) forget(list.lastElementChild.dataset.id);
  }

  return {
    describe,
    /** `liveSince` is the fetch during which the drops arrived on the stream; it is unset for those of a page. */
    add(drops, liveSince) {
      for (const drop of drops) insert(drop, liveSince);
      empty.hidden = shown.size > 0;
    },
    drop(dropId) {
      deleted.add(dropId);
      if (deleted.size > MAX_DELETED) deleted.delete(deleted.values().next().value);
      forget(dropId);
    },
    /** Keeps what arrived live during the fetch, which its answer may lack. */
    replace(drops, fetch) {
      for (const [dropId, { liveSince }] of shown) if (liveSince !== fetch) forget(dropId);
      this.add(drops);
    },
  };
}
