import { drawThread, originalOf } from "./row.js";

/** The field of a drop that says if the viewer has made a reaction. The number of all has the name of the reaction. */
export const COUNTED = { likes: "liked", shares: "shared" };

/** Returns the function of each button of a row. The stream tells of a deletion and of an edit. */
export const createReactions = ({ timeline, writing, call, pathOf, viewer }) => ({
  replies: (drop) => writing.answer(drop),
  thread: async (drop) => {
    const row = timeline.rowOf(drop.drop_id);
    if (row.querySelector(".thread").hasChildNodes()) return drawThread(row);
    const { drops } = await call("GET", pathOf("threads", originalOf(drop)));
    drawThread(row, originalOf(drop), drops);
  },
  edit: async (drop) => {
    const body = prompt("New text", drop.body);
    if (body) await call("PUT", pathOf("drops", originalOf(drop)), { body });
  },
  delete: (drop) => call("DELETE", pathOf("drops", drop.drop_id)),
  change: async (kind, drop, undo) => {
    const asked = { user_id: viewer(), drop_id: originalOf(drop) };
    const { changed } = await call(undo ? "DELETE" : "POST", `/world/${kind}`, asked);
    const more = changed ? (undo ? -1 : 1) : 0;
    timeline.change(asked.drop_id, (row) => ({ [COUNTED[kind]]: !undo, [kind]: (row[kind] ?? 0) + more }));
  },
});
