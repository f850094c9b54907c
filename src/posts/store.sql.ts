import type { Db } from "../platform/db/db.js";
import { createCalibrationStore } from "./calibration.sql.js";
import { createCleanupStore, createUpkeepLease } from "./cleanup.sql.js";
import { createCountReactions } from "./counting.sql.js";
import { createDropWrites } from "./drops.sql.js";
import { createPartitionStore } from "./partitions.sql.js";
import type { PostsStore } from "./ports.js";
import { createReactionStore } from "./reactions.sql.js";
import { createDropReads } from "./reads.sql.js";
import { createRemoteStore } from "./remote.sql.js";
import { createRetentionStore } from "./retention.sql.js";

/** Where the schema of posts is; it writes into the outbox, too, whose migrations come before. */
export const POSTS_MIGRATIONS = { component: "posts", folder: new URL("./migrations/", import.meta.url) };

/** Everything the posts service stores, in a database that is migrated. */
export function createPostsStore(db: Db): PostsStore {
  const partitions = createPartitionStore(db);
  const count = createCountReactions(db);
  return {
    drops: { ...createDropReads(db), ...createDropWrites(db, partitions) },
    reactions: createReactionStore(db),
    remote: createRemoteStore(db),
    count,
    calibration: createCalibrationStore(db, count),
    partitions,
    retention: createRetentionStore(db),
    cleanup: createCleanupStore(db),
    lease: createUpkeepLease(db),
  };
}
