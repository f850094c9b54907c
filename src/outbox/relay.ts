import { codeOf, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { backoff, pause, SECOND } from "../kernel/time.js";
import type { OutboxEvent, OutboxStore, PublishEvent } from "./ports.js";

/** What a relay works with. */
export interface RelayDeps {
  readonly store: Pick<OutboxStore, "claim" | "markPublished" | "release">;
  /** Comes before the publishing: may redirect events, and does what must be done before anybody hears of them. */
  readonly prepare?: (events: readonly OutboxEvent[]) => Promise<readonly OutboxEvent[]>;
  readonly publish: PublishEvent;
  /** Unset: a second. */
  readonly lookEveryMs?: number;
  readonly log: Logger;
  readonly observe: {
    published(event: OutboxEvent): void;
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
  const { published, outage } = await publishAll(deps, claimed);
  await failpoint("outbox-published");
  if (published.length > 0) await store.markPublished(published.map(({ id }) => id));
  await failpoint("outbox-marked");
  for (const event of published) observe.published(event);
  if (outage === undefined) return published.length;
  const done = new Set(published.map(({ id }) => id));
  await store.release(claimed.map(({ id }) => id).filter((id) => !done.has(id)));
  throw outage;
}

async function publishAll(
  { prepare, publish, log, observe }: RelayDeps,
  claimed: readonly OutboxEvent[],
): Promise<{ published: OutboxEvent[]; outage?: unknown }> {
  const until = performance.now() + PUBLISH_WITHIN_MS;
  const published: OutboxEvent[] = [];
  let outage: unknown;
  const publishOne = async (event: OutboxEvent): Promise<void> => {
    if (performance.now() > until) return;
    try {
      await publish(event);
      published.push(event);
    } catch (error) {
      if (codeOf(error) === "unavailable") outage ??= error;
      else {
        // It stays claimed, so that it does not hold up the others at every round.
        observe.failed();
        log.error({ id: event.id, subject: event.subject, error: oneLine(error) }, "an event cannot be published");
      }
    }
  };
  try {
    await Promise.all(((await prepare?.(claimed)) ?? claimed).map(publishOne));
  } catch (error) {
    outage = error;
  }
  return outage === undefined ? { published } : { published, outage };
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
