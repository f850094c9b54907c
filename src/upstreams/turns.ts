import { createCache } from "../contracts/caches.js";
import { AppError, oneLine, subjectOf } from "../kernel/errors.js";
import { pause, SECOND } from "../kernel/time.js";

/** Another call about the same subject is not answered yet; its outcome is expected soon. */
export class Busy extends AppError {}

/** Time to wait for another call about the same subject. */
const PATIENCE_MS = SECOND / 4;
const FAST_MS = PATIENCE_MS / 2;
/** After an answer, calls about the subject are sent without a turn for this time. */
const ANSWERED_MS = SECOND;
/** Memory of a call that failed: its error keeps the cause and the stacks of both. */
const LEADER_BYTES = 8_000;

interface Leader {
  readonly begunAt: number;
  /** Undefined once the call has ended: a promise keeps the arguments of its call, some 4 KB. */
  ended?: Promise<unknown> | undefined;
  endedAt?: number;
  /** Undefined if the call was answered, or has not ended. */
  error?: unknown;
}

/**
 * For each subject that may not be answered the first call is sent, and later ones wait up to 250 ms for its result:
 * they occupy slots that other work needs. A failure of the subject is remembered for as long as the failed call took,
 * so that at least half of the time no call waits for a subject that hangs.
 */
export class Turns {
  readonly #leaders = createCache<Leader>("leadingCalls", { sizeOf: () => LEADER_BYTES });

  /** `isOfOne` resolves to true if other subjects are answered, as far as is known. */
  constructor(private readonly isOfOne: (name: string, subject: string) => Promise<boolean>) {}

  /** @throws Busy if the first call is not answered yet */
  async take<T>(name: string, subject: string, call: () => Promise<T>): Promise<T> {
    const key = `${name} ${subject}`;
    const leader = this.#leaders.get(key);
    if (!leader || isOver(leader)) return this.#lead(key, call);
    const msLeft = leader.begunAt + PATIENCE_MS - performance.now();
    if (leader.ended && msLeft > 0) await Promise.race([leader.ended, pause(msLeft)]);
    if (leader.endedAt === undefined) {
      const isOfOne = await this.isOfOne(name, subject);
      throw new Busy("unavailable", `${name}: another call about the same user is not answered yet`, {
        subject: isOfOne ? subject : undefined,
      });
    }
    if (leader.error === undefined) return call();
    if (isOver(leader)) return this.take(name, subject, call);
    // Another call failed, not this one: an outage may begin with that failure.
    throw new Busy("unavailable", oneLine(leader.error), { cause: leader.error, subject: subjectOf(leader.error) });
  }

  async #lead<T>(key: string, call: () => Promise<T>): Promise<T> {
    const begunAt = performance.now();
    const calling = call();
    const leader: Leader = { begunAt, ended: calling.catch(() => undefined) };
    this.#leaders.set(key, leader);
    try {
      return await calling;
    } catch (error) {
      leader.error = error;
      throw again(error, validMs(error, performance.now() - begunAt));
    } finally {
      leader.endedAt = performance.now();
      leader.ended = undefined;
    }
  }
}

const isOver = (leader: Leader): boolean => msUntilOver(leader) <= 0;

function msUntilOver({ begunAt, endedAt, error }: Leader): number {
  if (endedAt === undefined) return Number.POSITIVE_INFINITY;
  return endedAt + validMs(error, endedAt - begunAt) - performance.now();
}

function validMs(error: unknown, took: number): number {
  if (error === undefined) return ANSWERED_MS;
  // An outage ends for all subjects at once, and a fast failure delays nobody.
  return subjectOf(error) === undefined || took < FAST_MS ? 0 : took;
}

/** Work whose failure spends an attempt is retried only when the next call may be sent. */
function again(error: unknown, retryAfterMs: number): unknown {
  if (!(error instanceof AppError) || error.subject === undefined) return error;
  const { code, message, publicMessage, subject, cause } = error;
  return new AppError(code, message, { cause, publicMessage, subject, retryAfterMs: Math.max(0, retryAfterMs) });
}
