import type { Redis } from "ioredis";
import type { OutboxSource } from "../contracts/outbox.js";
import type { StoreDeadLetter } from "../delivery/dead-letter.js";
import type { Logger } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import type { Publish } from "../platform/nats/publish.js";
import { type Measurement, startSampling } from "../telemetry/samples.js";
import { createDeadLetterEvent } from "./dead-letter-event.js";
import { backlogMeasurements, observeOutbox } from "./observe.js";
import { alsoOnChannels, createPublishEvent } from "./publish.nats.js";
import { type PrepareEvents, startOutboxMaintenance, startRelay } from "./relay.js";
import { createOutboxStore } from "./store.sql.js";

export const OUTBOX_MIGRATIONS = { component: "outbox", folder: new URL("./migrations/", import.meta.url) };

export interface OutboxOptions {
  readonly source: OutboxSource;
  readonly db: Db;
  readonly publish: Publish;
  readonly storeDeadLetter: StoreDeadLetter;
  /** Where it is unset, events are not published on Redis channels. */
  readonly channels: { readonly redis: Pick<Redis, "publish">; readonly prefix: string } | undefined;
  readonly prepare?: PrepareEvents;
  /** Metrics set the interval if this is unset. */
  readonly countEveryMs?: number | undefined;
  readonly version: string;
  readonly log: Logger;
}

export type Outbox = Awaited<ReturnType<typeof startOutbox>>;

/** Counting takes longer the more events wait. */
const BACKLOG_SAMPLE_MS = 10 * SECOND;

export async function startOutbox(options: OutboxOptions) {
  const { source, db, channels, storeDeadLetter, version, prepare, countEveryMs = BACKLOG_SAMPLE_MS, log } = options;
  const store = createOutboxStore(db, source);
  const publish = createPublishEvent(options.publish);
  const relay = startRelay({
    store,
    prepare,
    publish: channels === undefined ? publish : alsoOnChannels(publish, channels.redis, channels.prefix),
    deadLetter: createDeadLetterEvent({ source, storeDeadLetter, version }),
    log,
    observe: observeOutbox(source),
  });
  await store.onNotified(relay.wake);
  const maintenance = startOutboxMaintenance(store, log);
  let waiting = 0;
  const take = async (): Promise<Measurement[]> => {
    const backlog = await store.backlog();
    waiting = backlog.waiting;
    return backlogMeasurements(backlog, source);
  };
  const backlog = startSampling([{ name: `outbox ${source}`, take }], { everyMs: countEveryMs, log });
  const wakeOthers = throttled(store.notifyRelays, log);
  return {
    /** Never throws. */
    wake: (): void => {
      relay.wake();
      wakeOthers();
    },
    waiting: (): number => waiting,
    close: async (): Promise<void> => {
      await Promise.all([relay.close(), maintenance.close(), backlog.close()]);
    },
  };
}

const NOTIFY_EVERY_MS = 100;

/** Transactions with a NOTIFY commit one at a time: one in each writer's transaction would make all of them wait. */
function throttled(notify: () => Promise<void>, log: Logger): () => void {
  let next = 0;
  return () => {
    const now = performance.now();
    if (now < next) return;
    next = now + NOTIFY_EVERY_MS;
    notify().catch((error: Error) => log.debug({ error: error.message }, "the other relays could not be woken"));
  };
}
