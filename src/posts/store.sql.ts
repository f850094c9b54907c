import type { Db } from "../platform/db/db.js";
import { createAudienceStore } from "./audience.sql.js";
import { createCreation } from "./create.sql.js";
import { createDropWrites } from "./drops.sql.js";
import { createErasedReads } from "./erased.sql.js";
import { createErasureStore } from "./erasure.sql.js";
import { createFetchStore } from "./fetches.sql.js";
import { createLinkStore } from "./links.sql.js";
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
import { createRemoteReactionStore } from "./remote-reactions.sql.js";
import { createRepostStore } from "./reposts.sql.js";

export type PostsStore = ReturnType<typeof createPostsStore>;

export function createPostsStore(db: Db) {
  const partitions = createPartitionStore(db);
  const reposts = createRepostStore(db, partitions);
  return {
    drops: { ...createDropReads(db), ...createDropWrites(db), create: createCreation(db, partitions) },
    reactions: createReactionStore(db),
    reposts,
    lists: createListReads(db),
    remote: createRemoteStore(db),
    fetches: createFetchStore(db),
    audience: createAudienceStore(db),
    remoteReactions: createRemoteReactionStore(db),
    links: createLinkStore(db, partitions),
    partitions,
    retention: createRetentionStore(db),
    cleanup: createCleanupStore(db, reposts.removeOf),
    erased: createErasedReads(db),
    erasure: createErasureStore(db),
    lease: createMaintenanceLease(db),
  };
}
