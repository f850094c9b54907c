import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { startNotifications } from "../notifications/index.js";
import { connectUsers } from "../upstreams/upstreams.grpc.js";
import { startConsumer, startForgetting } from "./consumers.js";
import type { RunningRole, StoringRoleDeps } from "./role.js";

/** Maximum number of events in a batch, which one statement writes. The embedded database stops the process meanwhile. */
const EVENTS_A_BATCH = 200;
/** The jobs of a user wait for each other in the database. */
const JOBS_A_BATCH = 1;

export async function startNotificationsRole(deps: StoringRoleDeps): Promise<RunningRole> {
  const { config, connections, db, log } = deps;
  const { userServiceAddr: usersAddr, tls } = config.upstreams;
  if (usersAddr === undefined)
    log.warn({}, "TIMELINE_USER_SERVICE_ADDR is not set: people are also notified by those whom they hide");
  const users = usersAddr === undefined ? undefined : connectUsers(usersAddr, tls, log);
  const { state, publishAll } = connections;
  const readsAtOnce = Math.ceil(config.database.poolSize / 2);
  const notifications = startNotifications({ db, state, publishAll, users, readsAtOnce, log });
  const { events, jobs } = notifications.handlers;
  const consumers = [
    [STREAM.drops, CONSUMER.notifications, events, EVENTS_A_BATCH],
    [STREAM.activity, CONSUMER.activities, events, EVENTS_A_BATCH],
    [STREAM.fanout, CONSUMER.hotNotifications, jobs, JOBS_A_BATCH],
  ] as const;
  const consuming = consumers.map(([stream, consumer, { single: handler, batch: batchHandler }, concurrency]) =>
    startConsumer(deps, { stream, consumer, handler, batchHandler, concurrency }),
  );
  const forgetting = await startForgetting(deps, "notifications", notifications.forget);
  return {
    services: [notifications.service],
    notReady: () => {
      if (!consuming.every((consumer) => consumer.healthy())) return "notifications: events are not fetched";
      return forgetting.healthy() ? undefined : "notifications: erasures are not fetched";
    },
    close: async (graceMs) => {
      await Promise.all([...consuming, forgetting].map((consumer) => consumer.close(graceMs)));
      await notifications.close();
      users?.close();
    },
  };
}
