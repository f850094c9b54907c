import { codeOf, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { backoff, pause, SECOND } from "../kernel/time.js";
import type { DeadLetterEvent } from "./dead-letters.js";
import { EventRefused, type OutboxEvent, type OutboxStore, type PublishEvent } from "./ports.js";

/** What a relay works with. */
export interface RelayDeps {
  readonly store: Pick<OutboxStore, "claim" | "markPublished" | "release" | "refuse">;
  /** Comes before the publishing: may redirect events, and does what must be done before anybody hears of them. */
  readonly prepare?: (events: readonly OutboxEvent[]) => Promise<readonly OutboxEvent[]>;
  readonly publish: PublishEvent;
  readonly deadLetter: DeadLetterEvent;
  /** Unset: a second. */
  readonly lookEveryMs?: number;
  readonly log: Logger;
  readonly observe: {
    published(event: OutboxEvent): void;
    deadLettered(event: OutboxEvent, reason: string): void;
    failed(): void;
  };
}

/** Publishes what a service writes into its outbox. */
export interface Relay {
  /** Something was written. */
  wake(): void;
  /** False while publishing fails. */
  healthy(): boolean;
  /** Publishes what is there now, and ends. */
  close(): Promise<void>;
}

/** Events in hand at once. */
const BATCH = 500;

/** How long a claim holds: what a dead relay had in hand is published after it. */
const LEASE_MS = 10 * SECOND;

/**
 * Beyond this a relay that was stopped or slow begins to publish nothing more, since another may have it in hand by the
 * time the server has acknowledged it or the publishing has timed out.
 */
const PUBLISH_WITHIN_MS = 3 * SECOND;

/** An event that NATS has refused so often is given up. The first attempts are a second apart, the last eight. */
const MAX_REFUSALS = 5;
const REFUSED_AGAIN_MS = SECOND;

/** Where nobody wakes it, a relay looks so often. */
const LOOK_EVERY_MS = SECOND;

/**
 * Starts a relay: claims, publishes, and marks what was acknowledged. Several relays of a service, in any processes,
 * publish an event once, and the events of a key in their order; one that dies in between leaves its claim to run out,
 * and what it had published already is told by its message id.
 */
export function startRelay(deps: RelayDeps): Relay {
  const stopping = new AbortController();
  const bell = createBell();
  let failures = 0;
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        const found = await relayOnce(deps);
        failures = 0;
        if (found === 0) await bell.rung(deps.lookEveryMs ?? LOOK_EVERY_MS, stopping.signal);
      } catch (error) {
        failures += 1;
        deps.observe.failed();
        if (failures === 1) deps.log.warn({ error: oneLine(error) }, "the outbox cannot be published; it is kept");
        await pause(backoff(failures, SECOND / 10, 5 * SECOND), stopping.signal);
      }
    }
    // What was written meanwhile need not wait for somebody else's relay.
    await relayOnce(deps).catch(() => undefined);
  };
  const running = run();
  return {
    wake: bell.ring,
    healthy: () => failures < 3,
    close: async () => {
      stopping.abort();
      await running;
    },
  };
}

/** One round; returns how many events were published. Rejects where a server is away, after giving back the rest. */
async function relayOnce(deps: RelayDeps): Promise<number> {
  const { store, observe } = deps;
  const claimed = await store.claim(BATCH, LEASE_MS);
  if (claimed.length === 0) return 0;
  await failpoint("outbox-claimed");
  const { published, refused, outage } = await publishAll(deps, claimed);
  await failpoint("outbox-published");
  if (published.length > 0) await store.markPublished(published.map(({ id }) => id));
  await failpoint("outbox-marked");
  for (const event of published) observe.published(event);
  await Promise.all(refused.map((one) => giveUpOrWait(deps, one)));
  if (outage === undefined) return published.length;
  const done = new Set([...published, ...refused.map(({ event }) => event)].map(({ id }) => id));
  await store.release(claimed.map(({ id }) => id).filter((id) => !done.has(id)));
  throw outage;
}

/** An event that was refused, and not because a server is away. */
interface Refused {
  readonly event: OutboxEvent;
  readonly error: unknown;
}

/**
 * Dead-letters an event that NATS will not take, so that its key goes on; the letter is stored before the row is marked.
 * Where the letter cannot be stored the row stays, and is tried again.
 */
async function giveUpOrWait(deps: RelayDeps, { event, error }: Refused): Promise<void> {
  const { store, deadLetter, log, observe } = deps;
  const fields = { id: event.id, error: oneLine(error) };
  const refusals = await store.refuse(event.id, REFUSED_AGAIN_MS);
  const reason = error instanceof EventRefused ? error.reason : "poison";
  const always = error instanceof EventRefused && error.always;
  if (!always && refusals < MAX_REFUSALS) {
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
    if (performance.now() > until) return;
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

/** A ring that came while nobody waited is heard by the next who does. */
function createBell(): { ring(): void; rung(timeoutMs: number, stopping: AbortSignal): Promise<void> } {
  let rung = false;
  let waiting: AbortController | undefined;
  return {
    ring: () => {
      rung = true;
      waiting?.abort();
    },
    rung: async (timeoutMs, stopping) => {
      if (!rung) {
        waiting = new AbortController();
        await pause(timeoutMs, AbortSignal.any([waiting.signal, stopping]));
        waiting = undefined;
      }
      rung = false;
    },
  };
}
