import type { ErasurePart } from "../../src/contracts/subjects.js";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { untilOlderEnded } from "../../src/platform/db/older-transactions.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { createListCache } from "../../src/state/caches/user-lists.redis.js";
import { createLists } from "../../src/state/entries/lists.redis.js";
import type { ErasureReport } from "../../src/state/erased/erasures.js";
import { createErasureRows } from "../../src/users/erasure-rows.sql.js";
import { type ErasuresDeps, startErasures } from "../../src/users/erasures.js";
import { createErasureStore } from "../../src/users/erasures.sql.js";

/** Erased users and reports of parts that no server keeps. */
export function erasedHere() {
  const users = new Map<string, number>();
  const parts = new Map<ErasurePart, ErasureReport>();
  return {
    users,
    parts,
    record: async (user: string, version: number): Promise<boolean> => users.set(user, version).size > 0,
    reports: async (): Promise<ReadonlyMap<ErasurePart, ErasureReport>> => parts,
  };
}

type Here = { readonly db: Db; readonly scripts: Scripts } & Partial<ErasuresDeps>;

/** The loop of one process of the users service. */
export const erasing = ({ db, scripts, ...deps }: Here) =>
  startErasures({
    store: createErasureStore(db),
    rows: createErasureRows(db),
    cache: createListCache(scripts),
    erased: erasedHere(),
    forgetTimeline: createLists(scripts).forget,
    untilOlderEnded: (stopping) => untilOlderEnded(db, { stopping }),
    wakeRelay: () => undefined,
    log: silent,
    ...deps,
  });
