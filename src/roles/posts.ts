import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { SECOND } from "../kernel/time.js";
import { startPosts } from "../posts/index.js";
import { connectUsers } from "../upstreams/upstreams.grpc.js";
import { startConsumer, startForgetting } from "./consumers.js";
import { openPageTokens, startOutboxOf } from "./database.js";
import type { RunningRole, StoringRoleDeps } from "./role.js";

/** Maximum number of reactions in flight, which are counted together. */
const COUNTED_AT_ONCE = 500;

/** Starts the service, its outboxes, the counting of reactions, and the erasures. */
export async function startPostsRole(deps: StoringRoleDeps): Promise<RunningRole> {
  const { config, connections, db, log } = deps;
  const { userServiceAddr: usersAddr, tls } = config.upstreams;
  if (usersAddr === undefined)
    log.warn({}, "TIMELINE_USER_SERVICE_ADDR is not set: drops for followers are shown to no viewer but their author");
  const countEveryMs = config.posts.maxWaitingEvents === 0 ? undefined : SECOND;
  const outboxes = {
    posts: await startOutboxOf(deps, { source: "posts", countEveryMs }),
    reactions: await startOutboxOf(deps, { source: "reactions" }),
    activity: await startOutboxOf(deps, { source: "activity" }),
  };
  const users = usersAddr === undefined ? undefined : connectUsers(usersAddr, tls, log);
  const tokens = await openPageTokens(db, "posts", log);
  const posts = startPosts({
    db,
    state: connections.state,
    users,
    tokens,
    config: config.posts,
    log,
    wakeRelay: (source) => outboxes[source].wake(),
    waitingEvents: outboxes.posts.waiting,
  });
  const counter = startConsumer(deps, {
    stream: STREAM.engagement,
    consumer: CONSUMER.counter,
    handler: posts.countEngagement,
    concurrency: COUNTED_AT_ONCE,
  });
  const forgetting = await startForgetting(deps, "posts", posts.forget);
  return {
    services: [posts.service],
    notReady: () => {
      if (!counter.healthy()) return "posts: the counter is not pulling";
      return forgetting.healthy() ? posts.notReady() : "posts: erasures are not fetched";
    },
    close: async (graceMs) => {
      await Promise.all([counter.close(graceMs), forgetting.close(graceMs), posts.close()]);
      users?.close();
      // They close last, so that events written until now are published.
      await Promise.all(Object.values(outboxes).map((outbox) => outbox.close()));
    },
  };
}
