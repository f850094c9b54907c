import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { prepareUserEvents, startUsers } from "../users/index.js";
import { startConsumer } from "./consumers.js";
import { openPageTokens, startOutboxOf } from "./database.js";
import type { RunningRole, StoringRoleDeps } from "./role.js";

/** Maximum number of edges in flight, which are applied together. */
const CALM_AT_ONCE = 1_000;
const HOT_AT_ONCE = 2_000;

/** The follow graph: the service, its outboxes, and the building of the follower lists. */
export async function startUsersRole(deps: StoringRoleDeps): Promise<RunningRole> {
  const { config, connections, db, log } = deps;
  const { state } = connections;
  const prepare = prepareUserEvents({ state, log });
  const outboxes = {
    users: await startOutboxOf(deps, { source: "users", prepare }),
    edges: await startOutboxOf(deps, { source: "edges", prepare }),
    requests: await startOutboxOf(deps, { source: "requests" }),
  };
  const users = startUsers({
    db,
    state,
    log,
    tokens: await openPageTokens(db, "users", log),
    config: config.users,
    // The rest of the pool is for writes, which go on while Redis is unavailable and every read is one of the database.
    readsAtOnce: Math.ceil(config.database.poolSize / 2),
    wakeRelay: (source) => outboxes[source].wake(),
  });
  const { calm, hot } = users.applyEdges;
  const stream = STREAM.edges;
  const consuming = [
    startConsumer(deps, { stream, consumer: CONSUMER.edges, handler: calm, concurrency: CALM_AT_ONCE }),
    startConsumer(deps, { stream, consumer: CONSUMER.hotEdges, handler: hot, concurrency: HOT_AT_ONCE }),
  ];
  return {
    services: users.services,
    notReady: () => (consuming.every((consumer) => consumer.healthy()) ? undefined : "users: edges are not fetched"),
    close: async (graceMs) => {
      await Promise.all([users.close(), ...consuming.map((consumer) => consumer.close(graceMs))]);
      // They close last, so that events written until now are published.
      await Promise.all(Object.values(outboxes).map((outbox) => outbox.close()));
    },
  };
}
