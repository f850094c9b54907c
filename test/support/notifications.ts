import { afterAll, afterEach, beforeAll, beforeEach, describe } from "@jest/globals";
import { ACTIVITY_SUBJECT_OF, type ActivityName } from "../../src/contracts/activity.js";
import { type EventName, SUBJECT_OF } from "../../src/contracts/events.js";
import { STREAM } from "../../src/contracts/subjects.js";
import type { Delivery, Handlers } from "../../src/delivery/handler.js";
import { type Notification, NotificationKind } from "../../src/gen/avion/notifications.js";
import { AppError } from "../../src/kernel/errors.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import { NOTIFICATIONS_MIGRATIONS, startNotifications } from "../../src/notifications/index.js";
import { createMethods } from "../../src/notifications/service.js";
import { createNotificationStore } from "../../src/notifications/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import type { Message, PublishAll } from "../../src/platform/nats/publish.js";
import { RECENT_KEY } from "../../src/state/keys.js";
import type { Users } from "../../src/upstreams/upstreams.grpc.js";
import { DATABASES, type DatabaseServer } from "./databases.js";
import { contextWith, deliveryOf } from "./deliveries.js";
import type { NatsBench } from "./nats.js";
import { natsOfFile } from "./nats-of-file.js";
import type { RedisBench } from "./redis.js";
import { redisOfFile } from "./redis-of-file.js";
import { stateOn } from "./state.js";

type Json = Readonly<Record<string, unknown>>;

/** The relations and the follows of users. */
export interface People {
  readonly hides: Map<string, Map<string, "all" | "reposts">>;
  readonly follows: Set<string>;
}

const HOUR = 3_600_000;

export type NotificationsBench = ReturnType<typeof openNotifications>;

/** The component in this process, on a migrated database; `seq` of messages counts up. */
function openNotifications(db: Db, redis: RedisBench, nats: NatsBench) {
  const people: People = { hides: new Map(), follows: new Set() };
  const hiddenOf = (user: string) =>
    [...(people.hides.get(user) ?? [])].map(([target_id, how]) => ({
      ...{ target_id, reposts_only: how === "reposts", expires_at: 0, blocked: false },
    }));
  const users = {
    hidden: async ({ user }: { readonly user: string }) => ({ hidden: hiddenOf(user), next: "" }),
    hiddenOfMany: async (asked: readonly string[]) => new Map(asked.map((user) => [user, hiddenOf(user)])),
    isFollowing: async (user: string, others: readonly string[]) =>
      others.map((other) => people.follows.has(`${user} ${other}`)),
    leaveOut: () => undefined,
  } as unknown as Users;
  const state = stateOn(redis.scripts, nats);
  const jobs: Message[] = [];
  let takesJobs = true;
  const publishAll: PublishAll = async (messages) => {
    if (!takesJobs) return messages.map(() => new AppError("unavailable", "FANOUT is full"));
    jobs.push(...messages);
    return messages.map((_, number) => ({ stream: STREAM.fanout, seq: number + 1, duplicate: false }));
  };
  const running = startNotifications({ db, state, publishAll, users, readsAtOnce: 4, settleMs: 0, log: silent });
  let seq = 0;
  const methods = createMethods({
    store: createNotificationStore(db),
    hidden: state.openHidden(users),
    ...{ standings: state.standings, notifyUser: state.streams.notifyUser, bounded: (work) => work() },
  });
  const deadline = () => ({ deadline: Date.now() + 10_000 });
  const next = (stream: string, subject: string, json: Json, stated: Partial<Delivery>): Delivery =>
    deliveryOf({ stream, subject, json, seq: ++seq, time: Date.now(), consumer: "notifications", ...stated });
  const handled = async ({ batch, single }: Handlers, all: readonly Delivery[]): Promise<Message[]> => {
    for (const delivery of await batch(all, contextWith())) await single(delivery, contextWith());
    return jobs.splice(0);
  };
  const handleJobs = async (made: readonly Message[]): Promise<void> => {
    for (const { subject, body } of made)
      await handled(running.handlers.jobs, [deliveryOf({ stream: STREAM.fanout, subject, body: Buffer.from(body) })]);
  };
  return {
    people,
    state,
    running,
    /** A message of DROPS. A drop is public, and new. */
    logged: (name: EventName, payload: Json, stated: Partial<Delivery> = {}): Delivery => {
      const isDrop = name === "drop_created" || name === "ap_drop_received";
      const usual = isDrop ? { visibility: "public", created_at: Date.now() - 1_000 } : {};
      return next(STREAM.drops, SUBJECT_OF[name], { ...usual, ...payload }, stated);
    },
    /** A message of ACTIVITY. */
    activity: (name: ActivityName, payload: Json, stated: Partial<Delivery> = {}): Delivery =>
      next(STREAM.activity, ACTIVITY_SUBJECT_OF[name], payload, stated),
    /** A like of an even version takes back the one before. */
    like(drop_id: string, author_id: string, user_id: string, version: number): Delivery {
      const active = version % 2 === 1;
      return this.activity("drop_reacted", { drop_id, author_id, user_id, kind: "like", active, version });
    },
    handle: async (...deliveries: readonly Delivery[]): Promise<void> =>
      handleJobs(await handled(running.handlers.events, deliveries)),
    /** Handles a batch. Resolves to the jobs that it makes. */
    queued: (...deliveries: readonly Delivery[]) => handled(running.handlers.events, deliveries),
    handleJobs,
    /** From now on NATS takes no jobs. */
    refuseJobs: (): void => {
      takesJobs = false;
    },
    /** Forgets what Redis knows of whom a user hides. */
    hiddenChanged: async (): Promise<void> => {
      const keys = await redis.raw.keys("timeline:x:hid*");
      if (keys.length > 0) await redis.raw.del(...keys);
    },
    listen: async (user: string): Promise<void> => void (await redis.raw.zadd(RECENT_KEY, Date.now(), encodeId(user))),
    list: async (user: string, asked: Partial<{ kinds: NotificationKind[]; limit: number; max_id: string }> = {}) =>
      methods.listNotifications({ user_id: user, kinds: [], limit: 0, max_id: "", ...asked }, deadline()),
    unread: (user: string) => methods.getUnread({ user_id: user }, deadline()),
    markRead: (user: string, up_to_id: string) => methods.markRead({ user_id: user, up_to_id }),
    /** Events of a user's stream so far. */
    told: async (user: string): Promise<Json[]> => {
      const { state: stored } = await nats.manager.streams.info(STREAM.notify);
      const events: Json[] = [];
      for (let number = stored.first_seq; number > 0 && number <= stored.last_seq; number++) {
        const message = await nats.manager.streams.getMessage(STREAM.notify, { seq: number }).catch(() => undefined);
        if (message?.subject === `notify.user.${encodeId(user)}`) events.push(message.json());
      }
      return events;
    },
    close: () => running.close(),
  };
}

/** "LIKE bob of d1", newest first. */
export const inWords = ({ notifications }: { readonly notifications: readonly Notification[] }): string[] =>
  notifications.map(({ kind, actor_id, drop_id }) =>
    [NotificationKind[kind], actor_id, ...(drop_id === "" ? [] : [drop_id])].join(" "),
  );

export const hoursAgo = (hours: number): number => Date.now() - hours * HOUR;

interface Scene {
  readonly server: DatabaseServer;
  readonly db: Db;
  readonly bench: NotificationsBench;
  words(user: string): Promise<string[]>;
  /** Returns an id of this test: streams keep the events of earlier tests. */
  own(user: string): string;
}

/** Describes the component on each database, which is empty before each test. */
export function describeNotifications(what: string, tests: (scene: Scene) => void): void {
  const redis = redisOfFile();
  const nats = natsOfFile();
  describe.each(DATABASES)(`${what} on $name`, ({ name, start }) => {
    let server: DatabaseServer;
    let db: Db;
    let bench: NotificationsBench;
    let run = 0;
    beforeAll(async () => {
      server = await start();
    }, 60_000);
    beforeEach(async () => {
      db = await server.emptyDatabase([NOTIFICATIONS_MIGRATIONS]);
      bench = openNotifications(db, redis, nats);
      run++;
    });
    afterEach(() => bench.close());
    afterAll(() => server.stop());
    tests({
      get server() {
        return server;
      },
      get db() {
        return db;
      },
      get bench() {
        return bench;
      },
      words: async (user) => inWords(await bench.list(user)),
      own: (user) => `${user}-${name}-${run}`,
    });
  });
}
