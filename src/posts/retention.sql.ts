import type { Db } from "../platform/db/db.js";
import type { RetentionStore } from "./ports.js";

/** Down to when drops are kept. */
export function createRetentionStore(db: Db): RetentionStore {
  const keptSince = async (): Promise<number> => {
    const [row] = await db.query<{ keptSince: number }>(`SELECT kept_since AS "keptSince" FROM posts.retention`);
    return row?.keptSince ?? 0;
  };
  return {
    keptSince,
    raise: async (time) => {
      await db.query("UPDATE posts.retention SET kept_since = $1 WHERE kept_since < $1", [time]);
      return keptSince();
    },
  };
}
