import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { MINUTE, pause, SECOND } from "../kernel/time.js";
import type { Continuity, Lease, ReadBacklogStart, Stretch } from "./ports.js";

/** What a process needs to make good for a loss. */
export interface Mending {
  readonly lease: Lease;
  readonly readBacklogStart: ReadBacklogStart;
  /** Applies a stretch of the log again; resolves to how many events that were. Where it rejects it is begun anew. */
  readonly replay: (stretch: Stretch, stopping: AbortSignal) => Promise<number>;
  readonly observe: (events: number) => void;
}

interface GuardDeps {
  readonly continuity: Continuity;
  readonly log: Logger;
  /** Unset: this process only looks. */
  readonly mending?: Mending | undefined;
}

/** Watches over what Redis has confirmed. */
export interface Guard {
  /** True from when data may be missing until it has been applied again. */
  broken(): boolean;
  /** The link was lost: until the next look nothing is known. */
  doubt(): void;
  close(): Promise<void>;
}

const LOOK_MS = SECOND;
const RENEW_MS = 3 * SECOND;
/** Times of the log are NATS's, the note's are ours. */
const CLOCK_SKEW_MS = MINUTE;

/**
 * Looks every second whether Redis is still the server, with the data, that it
 * was; one process also notes how far the log is applied. Where a server lost
 * what it had confirmed (it crashed, or a replica took over), the log is
 * applied again from there on.
 */
export function startGuard({ continuity, log, mending }: GuardDeps): Guard {
  const stopping = new AbortController();
  let broken = false;
  const look = async (): Promise<void> => {
    const inCharge = mending !== undefined && (await mending.lease.hold());
    const from = inCharge ? await mending.readBacklogStart() : undefined;
    const lostSince = await continuity.check(from);
    if (lostSince !== undefined && !broken) log.warn({ since: lostSince }, "Redis may have lost what it had confirmed");
    broken = lostSince !== undefined;
    if (lostSince === undefined || !inCharge) return;
    const events = await holding(mending.lease, () =>
      mending.replay({ from: lostSince - CLOCK_SKEW_MS }, stopping.signal),
    );
    if (stopping.signal.aborted) return;
    await continuity.mended(from as number);
    broken = false;
    mending.observe(events);
    log.warn({ since: lostSince, events }, "the log has been applied again since then");
  };
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await look().catch((error: unknown) => log.debug({ error: oneLine(error) }, "Redis cannot be looked at"));
      await pause(LOOK_MS, stopping.signal);
    }
  };
  const running = run();
  return {
    broken: () => broken,
    doubt: () => {
      broken = true;
    },
    async close() {
      stopping.abort();
      await Promise.race([running, pause(SECOND)]);
      await mending?.lease.release().catch(() => undefined);
    },
  };
}

/** Keeps a lease as long as the work takes. */
async function holding<T>(lease: Lease, work: () => Promise<T>): Promise<T> {
  const renewing = setInterval(() => void lease.hold().catch(() => undefined), RENEW_MS);
  try {
    return await work();
  } finally {
    clearInterval(renewing);
  }
}
