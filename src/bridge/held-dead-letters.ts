import type { DeadLetter, StoreDeadLetter } from "../delivery/dead-letter.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { backoff, MINUTE, pause, SECOND } from "../kernel/time.js";

interface HeldDeadLettersDeps {
  readonly store: StoreDeadLetter;
  /** Returns true if the DLQ answered that it does not take a dead letter; every other error is an outage. */
  readonly isRefusal: (error: unknown) => boolean;
  readonly log: Logger;
}

export interface HeldDeadLetters {
  /** "held" until the DLQ takes it, "refused" if there was no room to hold it. Rejects while NATS is unavailable. */
  take(deadLetter: DeadLetter): Promise<"stored" | "held" | "refused">;
  notReady(): string | undefined;
  close(graceMs: number): Promise<void>;
}

const MAX_HELD = 256;
const MAX_HELD_BYTES = 4 * 1024 * 1024;
const ALARM_EVERY_MS = MINUTE;
const RETRY_BASE_MS = SECOND / 10;
const RETRY_CAP_MS = 2 * SECOND;

/**
 * Keeps a DLQ that takes no dead letters from holding up events. Refused dead letters are held up to a bound, and
 * stored once the DLQ takes them; while any is held, new ones queue behind it. Beyond the bound they are lost, which
 * raises an alarm and makes the bridge not ready until everything held is stored.
 */
export function createHeldDeadLetters({ store, isRefusal, log }: HeldDeadLettersDeps): HeldDeadLetters {
  const stopping = new AbortController();
  const waiting: DeadLetter[] = [];
  let bytes = 0;
  let refused = 0;
  let alarmedAt = Number.NEGATIVE_INFINITY;
  let storing = Promise.resolve();

  const storeHeld = async (): Promise<void> => {
    for (let failures = 0; waiting.length > 0 && !stopping.signal.aborted; ) {
      const deadLetter = waiting[0] as DeadLetter;
      try {
        await store(deadLetter);
        waiting.shift();
        bytes -= deadLetter.body.byteLength;
        failures = 0;
      } catch {
        // A smaller one may still fit.
        waiting.push(waiting.shift() as DeadLetter);
        failures += 1;
        await pause(backoff(failures, RETRY_BASE_MS, RETRY_CAP_MS), stopping.signal);
      }
    }
    if (waiting.length > 0 || refused === 0) return;
    log.info({ refused }, "the DLQ takes dead letters again");
    refused = 0;
    alarmedAt = Number.NEGATIVE_INFINITY;
  };

  const hold = (deadLetter: DeadLetter): "held" | "refused" => {
    if (waiting.length >= MAX_HELD || bytes + deadLetter.body.byteLength > MAX_HELD_BYTES) {
      refused += 1;
      if (performance.now() - alarmedAt >= ALARM_EVERY_MS) {
        alarmedAt = performance.now();
        log.error({ held: waiting.length, refused }, "the DLQ takes no dead letters: they are refused");
      }
      return "refused";
    }
    bytes += deadLetter.body.byteLength;
    if (waiting.push(deadLetter) === 1) storing = storing.then(storeHeld);
    return "held";
  };

  return {
    take: async (deadLetter) => {
      if (waiting.length > 0) return hold(deadLetter);
      try {
        await store(deadLetter);
        return "stored";
      } catch (error) {
        if (!isRefusal(error)) throw error;
        if (waiting.length === 0)
          log.warn({ error: oneLine(error) }, "the DLQ takes no dead letters; they are held for a while");
        return hold(deadLetter);
      }
    },
    notReady: () => (refused > 0 ? "bridge: the DLQ takes no dead letters" : undefined),
    close: async (graceMs) => {
      await Promise.race([storing, pause(graceMs)]);
      stopping.abort();
      if (waiting.length > 0) log.error({ count: waiting.length }, "dead letters could not be stored before the end");
    },
  };
}
