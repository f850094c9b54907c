import type { Db } from "../platform/db/db.js";
import { createCreation } from "./create.sql.js";
import { createDropWrites } from "./drops.sql.js";
import { createListReads } from "./lists.sql.js";
import {
  createCleanupStore,
  createMaintenanceLease,
  createPartitionStore,
  createRetentionStore,
} from "./maintenance.sql.js";
import { createReactionStore } from "./reactions.sql.js";
import { createDropReads } from "./reads.sql.js";
import { createRemoteStore } from "./remote.sql.js";

export type PostsStore = ReturnType<typeof createPostsStore>;

export function createPostsStore(db: Db) {
  const partitions = createPartitionStore(db);
  return {
    drops: { ...createDropReads(db), ...createDropWrites(db), create: createCreation(db, partitions) },
    reactions: createReactionStore(db),
    lists: createListReads(db),
    remote: createRemoteStore(db),
    partitions,
    retention: createRetentionStore(db),
    cleanup: createCleanupStore(db),
    lease: createMaintenanceLease(db),
  };
}
