import { ACTS, CHANGES, draw, originalOf } from "./row.js";

const MAX_SHOWN = 1_000;
const MAX_DELETED = 5_000;

/** Returns the title of the timeline `view` of a user. */
export const titleOf = (view, user) =>
  ({ home: `Home timeline of ${user}`, notifications: `Notifications of ${user}`, list: `A list of ${user}` })[view] ??
  `${view === "local" ? "Local" : "Global"} timeline, as ${user} sees it`;

/**
 * Shows the newest drop first, each once, and no deleted one again. `onChange` gets a key of {@link CHANGES}, the drop,
 * and whether to undo, `onAct` a key of {@link ACTS} and the drop.
 */
export function createTimeline({ list, empty, template, onAct, onChange }) {
  const shown = new Map();
  const deleted = new Set();

  const isAfter = (a, b) => a.created_at > b.created_at || (a.created_at === b.created_at && a.drop_id > b.drop_id);

  function forget(dropId) {
    const row = shown.get(dropId)?.row;
    // The keyboard goes on beside a row that vanishes, and not at the top of the page.
    const focused = document.activeElement;
    if (row?.contains(focused)) {
      const neighbour = row.nextElementSibling ?? row.previousElementSibling;
      (neighbour?.querySelector(`[name="${focused.name}"]:not([hidden])`) ?? list).focus();
    }
    row?.remove();
    shown.delete(dropId);
    empty.hidden = shown.size > 0;
  }

  function describe(fields) {
    const entry = shown.get(fields.drop_id);
    if (!entry) return;
    entry.drop = { ...entry.drop, ...fields };
    draw(entry.row, entry.drop);
  }

  function insert(drop, liveSince) {
    if (deleted.has(drop.drop_id) || drop.deleted) return;
    if (shown.has(drop.drop_id)) return describe(drop);
    const row = template.content.firstElementChild.cloneNode(true);
    row.dataset.id = drop.drop_id;
    row.classList.toggle("fresh", liveSince !== undefined);
    const time = row.querySelector("time");
    const date = new Date(drop.created_at ?? 0);
    time.dateTime = date.toISOString();
    time.textContent = date.toLocaleString();
    for (const name of Object.keys(ACTS))
      row.querySelector(`[name=${name}]`).addEventListener("click", () => onAct(name, shown.get(drop.drop_id).drop));
    for (const [name, { state }] of Object.entries(CHANGES))
      row.querySelector(`[name=${name}]`).addEventListener("click", () => {
        const { drop: now } = shown.get(drop.drop_id);
        onChange(name, now, now[state]);
      });
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
    /** Changes all rows of an original; `fieldsOf` gets the drop of each. */
    change(original, fieldsOf) {
      for (const { drop } of shown.values())
        if (originalOf(drop) === original) describe({ drop_id: drop.drop_id, ...fieldsOf(drop) });
    },
    rowOf: (dropId) => shown.get(dropId)?.row,
    drop(dropId) {
      deleted.add(dropId);
      if (deleted.size > MAX_DELETED) deleted.delete(deleted.values().next().value);
      forget(dropId);
    },
    /** Keeps what arrived live during the fetch, which its answer may lack, and the rows of what stays, for the focus. */
    replace(drops, fetch) {
      const stays = new Set(drops.filter((drop) => !drop.deleted).map(({ drop_id }) => drop_id));
      for (const [dropId, { liveSince }] of shown) if (liveSince !== fetch && !stays.has(dropId)) forget(dropId);
      this.add(drops);
    },
    clear() {
      for (const dropId of shown.keys()) forget(dropId);
    },
  };
}
