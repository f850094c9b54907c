import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { connectFollowings } from "../platform/grpc/followings.js";
import { createCountEngagement } from "../posts/count-engagement.js";
import { createFollowedAmong } from "../posts/followings.grpc.js";
import { DEFAULT_POSTS_LIMITS } from "../posts/limits.js";
import { observePosts } from "../posts/observe.js";
import { createPostsService } from "../posts/service.grpc.js";
import { createPostsStore } from "../posts/store.sql.js";
import { startUpkeep } from "../posts/upkeep.js";
import { startConsumer } from "./consumers.js";
import { openPageTokens } from "./page-tokens.js";
import { startRelaying } from "./relaying.js";
import type { RunningRole, StoringRoleDeps } from "./role.js";

/** Reactions in hand at once: they are counted together. */
const COUNTED_AT_ONCE = 500;

/** Drops: the service, its outbox, and the counting of what people do with them. */
export async function startPostsRole(deps: StoringRoleDeps): Promise<RunningRole> {
  const { config, db, log } = deps;
  const store = createPostsStore(db);
  const retentionDays = config.posts.retentionDays;
  const relaying = await startRelaying(deps, "posts");
  const upkeep = startUpkeep({ store, now: Date.now, retentionDays, log, observe: observePosts });
  const counter = startConsumer(deps, {
    stream: STREAM.engagement,
    consumer: CONSUMER.counter,
    handler: createCountEngagement({ count: store.count, observe: observePosts }),
    concurrency: COUNTED_AT_ONCE,
  });
  const { userServiceAddr: usersAddr } = config.upstreams;
  if (usersAddr === undefined)
    log.warn({}, "TIMELINE_USER_SERVICE_ADDR is not set: drops for followers are shown to no viewer but their author");
  const users = usersAddr === undefined ? undefined : connectFollowings(usersAddr, config.upstreams);
  const service = createPostsService(
    {
      store,
      followedAmong: createFollowedAmong(users),
      tokens: await openPageTokens(db, "posts", log),
      limits: {
        ...DEFAULT_POSTS_LIMITS,
        maxBodyCharacters: config.posts.maxBodyCharacters,
        maxImportAgeDays: config.posts.maxImportAgeDays,
      },
      retentionDays,
      now: Date.now,
      wakeRelay: relaying.wake,
      observe: observePosts,
    },
    log,
  );
  return {
    services: [service],
    notReady: () => relaying.notReady() ?? (counter.healthy() ? undefined : "posts: the counter is not pulling"),
    close: async (graceMs) => {
      await Promise.all([counter.close(graceMs), upkeep.close()]);
      users?.close();
      // Last: what the others wrote until now is published.
      await relaying.close();
    },
  };
}
