import { admittedAt, notificationJobId } from "../contracts/notification-jobs.js";
import { notificationJobSubject } from "../contracts/subjects.js";
import { NotificationServiceService } from "../gen/avion/notifications.js";
import { createBoundedQueue } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import type { Db } from "../platform/db/db.js";
import { unaryService } from "../platform/grpc/unary.js";
import type { PublishAll } from "../platform/nats/publish.js";
import { createQueue } from "../platform/nats/queue.js";
import { NOTHING_HIDDEN, type State } from "../state/index.js";
import { follows } from "../upstreams/follows.js";
import type { Users } from "../upstreams/upstreams.grpc.js";
import { createHandlers } from "./apply.js";
import { createForget } from "./erasure.sql.js";
import { createGroupStore } from "./groups.sql.js";
import { startMaintenance } from "./maintenance.js";
import { createMaintenanceStore } from "./maintenance.sql.js";
import { createMethods } from "./service.js";
import { createNotificationStore } from "./store.sql.js";
import { startTelling } from "./tell.js";

export const NOTIFICATIONS_MIGRATIONS = {
  component: "notifications",
  folder: new URL("./migrations/", import.meta.url),
};

export interface NotificationsOptions {
  readonly db: Db;
  readonly state: Pick<State, "streams" | "erased" | "fences" | "standings" | "openHidden">;
  readonly publishAll: PublishAll;
  /** Undefined: nobody is hidden, and the limited notify nobody. */
  readonly users: Users | undefined;
  /** Maximum number of reads that query the database at a time. */
  readonly readsAtOnce: number;
  /** Time that an erasure waits before it removes anything, ms. Default: that of its role. */
  readonly settleMs?: number | undefined;
  readonly log: Logger;
}

const MAX_WAITING_READS = 10_000;

/** Starts the service, the events about likes and the maintenance, on a migrated database. */
export function startNotifications(options: NotificationsOptions) {
  const { db, state, publishAll, users, readsAtOnce, settleMs, log } = options;
  const { streams, erased, fences, standings } = state;
  const { listenersAmong, notifyUser } = streams;
  const hidden = users === undefined ? { known: async () => NOTHING_HIDDEN } : state.openHidden(users);
  const store = createNotificationStore(db);
  const groups = createGroupStore(db);
  const telling = startTelling({ groups, listenersAmong, notifyUser, erased, hidden, standings, log });
  const maintenance = startMaintenance({ store: createMaintenanceStore(db), log });
  const bounded = createBoundedQueue({
    atOnce: readsAtOnce,
    waiting: MAX_WAITING_READS,
    refusal: () => new AppError("unavailable", "too many reads wait for the database"),
  });
  return {
    service: unaryService(
      NotificationServiceService,
      createMethods({ store, hidden, standings, notifyUser, bounded }),
      log,
    ),
    handlers: createHandlers({
      store,
      fences,
      erased,
      hidden,
      standings,
      tell: telling.tell,
      queue: createQueue(publishAll, (job) => notificationJobSubject(admittedAt(job)), notificationJobId),
      follows: async (user, other) => users !== undefined && follows(users, user, other),
    }),
    forget: createForget(db, settleMs),
    close: async (): Promise<void> => {
      await Promise.all([telling.close(), maintenance.close()]);
    },
  };
}
