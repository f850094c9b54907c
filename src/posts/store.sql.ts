import type { Db } from "../platform/db/db.js";
import { createCreation } from "./drops/create.sql.js";
import { createDropWrites } from "./drops/drops.sql.js";
import { createErasedReads } from "./drops/erased.sql.js";
import { createPartitionStore, createRetentionStore } from "./drops/partitions.sql.js";
import { createDropReads } from "./drops/reads.sql.js";
import { createRemoteReads } from "./drops/remote-drops.sql.js";
import { createStateReads } from "./drops/state.sql.js";
import { createThreadReads } from "./drops/thread.sql.js";
import { createUserDrops } from "./drops/user-drops.sql.js";
import { createErasureStore } from "./erasure.sql.js";
import { createCleanupStore, createMaintenanceLease } from "./maintenance.sql.js";
import { createAdoption } from "./reactions/adopt.sql.js";
import { createListReads } from "./reactions/lists.sql.js";
import { createReactionStore } from "./reactions/reactions.sql.js";
import { createRepostStore } from "./reactions/reposts.sql.js";
import { createAudienceStore } from "./remote/audience.sql.js";
import { createFetchStore } from "./remote/fetches.sql.js";
import { createLinkStore } from "./remote/links.sql.js";
import { createRemoteWrites } from "./remote/remote.sql.js";
import { createRemoteReactionStore } from "./remote/remote-reactions.sql.js";

export type PostsStore = ReturnType<typeof createPostsStore>;

export function createPostsStore(db: Db) {
  const partitions = createPartitionStore(db);
  const remote = createRemoteReads(db);
  const reactions = createReactionStore(db);
  const reposts = createRepostStore(db, partitions);
  return {
    drops: { ...createDropReads(db), ...createDropWrites(db), create: createCreation(db, partitions) },
    reactions,
    reposts,
    lists: { ...createUserDrops(db), ...createListReads(db) },
    remote: { ...remote, ...createRemoteWrites(db, remote.get) },
    fetches: createFetchStore(db),
    audience: createAudienceStore(db),
    remoteReactions: createRemoteReactionStore(db),
    links: { ...createAdoption(db, partitions), ...createLinkStore(db) },
    partitions,
    retention: createRetentionStore(db),
    cleanup: createCleanupStore(db, { removeReposts: reposts.removeOf, removeReactions: reactions.removeOf }),
    erased: createErasedReads(db),
    states: createStateReads(db),
    threads: createThreadReads(db),
    erasure: createErasureStore(db),
    lease: createMaintenanceLease(db),
  };
}
