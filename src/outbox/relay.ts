import type { OutboxEvent } from "../contracts/outbox.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop, warnOnce } from "../kernel/loop.js";
import { HOUR, SECOND } from "../kernel/time.js";
import type { DeadLetterEvent } from "./dead-letter-event.js";
import type { ObserveOutbox } from "./observe.js";
import type { OutboxStore } from "./store.sql.js";

export class EventRefused extends Error {
  constructor(
    readonly reason: "toolarge" | "poison",
    /** NATS can never take the event. */
    readonly permanent: boolean,
    options: { readonly cause: unknown },
  ) {
    super(oneLine(options.cause), options);
  }
}

/** Rejects with EventRefused, or with AppError `unavailable` while a server is unavailable or a stream is full. */
export type PublishEvent = (event: OutboxEvent) => Promise<void>;

export type PrepareEvents = (events: readonly OutboxEvent[]) => Promise<readonly OutboxEvent[]>;

export interface RelayDeps {
  readonly store: Pick<OutboxStore, "claim" | "markPublished" | "release" | "refuse">;
  readonly prepare?: PrepareEvents | undefined;
  readonly publish: PublishEvent;
  readonly deadLetter: DeadLetterEvent;
  readonly lookEveryMs?: number;
  readonly log: Logger;
  readonly observe: ObserveOutbox;
}

export type Relay = ReturnType<typeof startRelay>;

const BATCH = 500;

const LEASE_MS = 10 * SECOND;

/** Another relay may claim the event before a later publishing is acknowledged or times out. */
const PUBLISH_WITHIN_MS = 3 * SECOND;

/** The first attempts are one second apart, the last eight. */
const MAX_REFUSALS = 5;
const REFUSED_AGAIN_MS = SECOND;

/** The claim of a relay that dies expires; an event it had published is recognised by its message id. */
export function startRelay(deps: RelayDeps) {
  const warn = warnOnce(deps.log, "the outbox cannot be published; it is kept");
  const loop = startLoop({
    work: async () => ((await relayOnce(deps)) === 0 ? undefined : 0),
    everyMs: deps.lookEveryMs ?? SECOND,
    backoffBaseMs: SECOND / 10,
    backoffCapMs: 5 * SECOND,
    failed: (...failure) => {
      deps.observe.failed();
      warn(...failure);
    },
  });
  return {
    wake: loop.wake,
    /** Publishes the events that wait now, and ends. */
    close: async (): Promise<void> => {
      await loop.close();
      // Events written meanwhile need not wait for the relay of another process.
      await relayOnce(deps).catch(() => undefined);
    },
  };
}

/** Returns the number of events published. Rejects if a server is unavailable or too slow, after releasing the rest. */
async function relayOnce(deps: RelayDeps): Promise<number> {
  const { store, observe } = deps;
  const leasedUntil = performance.now() + LEASE_MS;
  const claimed = await store.claim(BATCH, LEASE_MS);
  if (claimed.length === 0) return 0;
  await failpoint("outbox-claimed", ...claimed.map(({ body }) => body));
  const { published, refused, outage } = await publishAll(deps, claimed);
  await failpoint("outbox-published");
  if (published.length > 0) await store.markPublished(published.map(({ id }) => id));
  await failpoint("outbox-marked");
  for (const event of published) observe.published(event);
  await Promise.all(refused.map((refusal) => deadLetterOrRetry(deps, refusal)));
  if (outage === undefined) return published.length;
  const done = new Set([...published, ...refused.map(({ event }) => event)].map(({ id }) => id));
  // An expired claim may be another relay's by now.
  if (performance.now() < leasedUntil) await store.release(claimed.map(({ id }) => id).filter((id) => !done.has(id)));
  throw outage;
}

interface Refused {
  readonly event: OutboxEvent;
  readonly error: unknown;
}

/** The dead letter is stored before the row is marked. If it cannot be stored, the event is tried again. */
async function deadLetterOrRetry(deps: RelayDeps, { event, error }: Refused): Promise<void> {
  const { store, deadLetter, log, observe } = deps;
  const fields = { id: event.id, error: oneLine(error) };
  const refusals = await store.refuse(event.id, REFUSED_AGAIN_MS);
  const reason = error instanceof EventRefused ? error.reason : "poison";
  const permanent = error instanceof EventRefused && error.permanent;
  if (!permanent && refusals < MAX_REFUSALS) {
    observe.failed();
    return log.warn({ ...fields, refusals }, "an event of the outbox was refused; it is tried again");
  }
  try {
    await deadLetter(event, { reason, error, refusals });
    await failpoint("outbox-dead-lettered");
    await store.markPublished([event.id]);
    observe.deadLettered(event, reason);
    log.error({ ...fields, reason }, "an event of the outbox was dead-lettered: NATS does not take it");
  } catch (failed) {
    observe.failed();
    log.error({ ...fields, dlq_error: oneLine(failed) }, "a dead letter could not be stored; its event is kept");
  }
}

async function publishAll(
  { prepare, publish }: RelayDeps,
  claimed: readonly OutboxEvent[],
): Promise<{ published: OutboxEvent[]; refused: Refused[]; outage?: unknown }> {
  const until = performance.now() + PUBLISH_WITHIN_MS;
  const published: OutboxEvent[] = [];
  const refused: Refused[] = [];
  let outage: unknown;
  const publishOne = async (event: OutboxEvent): Promise<void> => {
    if (performance.now() > until) {
      outage ??= new AppError(
        "unavailable",
        `events could not be published within ${PUBLISH_WITHIN_MS} ms of their claim`,
      );
      return;
    }
    try {
      await publish(event);
      published.push(event);
    } catch (error) {
      if (codeOf(error) === "unavailable") outage ??= error;
      else refused.push({ event, error });
    }
  };
  try {
    await Promise.all(((await prepare?.(claimed)) ?? claimed).map(publishOne));
  } catch (error) {
    outage = error;
  }
  return { published, refused, ...(outage === undefined ? {} : { outage }) };
}

const KEPT_MS = HOUR;
const PRUNED_AT_ONCE = 5_000;

export function startOutboxMaintenance(store: Pick<OutboxStore, "prune">, log: Logger): Loop {
  return startLoop({
    work: async () => ((await store.prune(KEPT_MS, PRUNED_AT_ONCE)) === PRUNED_AT_ONCE ? 0 : undefined),
    everyMs: 15 * SECOND,
    jitter: true,
    failed: warnOnce(log, "published events could not be removed from the outbox; it is tried again"),
  });
}
