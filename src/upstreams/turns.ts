import { createCache } from "../contracts/caches.js";
import { AppError, oneLine, subjectOf } from "../kernel/errors.js";
import { pause, SECOND } from "../kernel/time.js";

/** Another call about the same subject is not answered yet: soon it is known whether it will be. */
export class Busy extends AppError {}

/** A call is waited for so long. */
const PATIENCE_MS = SECOND / 4;
const FAST_MS = PATIENCE_MS / 2;
/** Calls about the subject need no turn for so long after an answer. */
const ANSWERED_MS = SECOND;
/** Memory of a call that failed: its error keeps the cause and the stacks of both. */
const LEADER_BYTES = 8_000;

interface Leader {
  readonly begunAt: number;
  /** It is unset once the call has ended: a promise keeps what its call was made with, some 4 KB. */
  ended?: Promise<unknown> | undefined;
  endedAt?: number;
  /** The error is unset once the call has ended with an answer. */
  error?: unknown;
}

/**
 * One of the calls about a subject that may not be answered leads, and the others wait for its outcome, but not for
 * long: they keep slots that work for others needs. A failure of the subject counts for as long as it took, so that at
 * least half of the time nobody waits for a subject that hangs.
 */
export class Turns {
  readonly #leaders = createCache<Leader>("leadingCalls", { sizeOf: () => LEADER_BYTES });

  /** `isOfOne` resolves to true where others than the subject are answered, as far as is known. */
  constructor(private readonly isOfOne: (name: string, subject: string) => Promise<boolean>) {}

  /** @throws Busy where the call that leads is not answered yet */
  async take<T>(name: string, subject: string, call: () => Promise<T>): Promise<T> {
    const key = `${name} ${subject}`;
    const leader = this.#leaders.get(key);
    if (!leader || isOver(leader)) return this.#lead(key, call);
    const left = leader.begunAt + PATIENCE_MS - performance.now();
    if (leader.ended && left > 0) await Promise.race([leader.ended, pause(left)]);
    if (leader.endedAt === undefined) {
      const isOfOne = await this.isOfOne(name, subject);
      throw new Busy("unavailable", `${name}: another call about the same user is not answered yet`, {
        subject: isOfOne ? subject : undefined,
      });
    }
    if (leader.error === undefined) return call();
    if (isOver(leader)) return this.take(name, subject, call);
    // The failure is not their own: an outage may begin with it.
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
  // An outage ends for all at once, and a failure that comes fast keeps nobody waiting.
  return subjectOf(error) === undefined || took < FAST_MS ? 0 : took;
}

/** Work that spends an attempt on it comes again after the next call. */
function again(error: unknown, retryAfterMs: number): unknown {
  if (!(error instanceof AppError) || error.subject === undefined) return error;
  const { code, message, publicMessage, subject, cause } = error;
  return new AppError(code, message, { cause, publicMessage, subject, retryAfterMs: Math.max(0, retryAfterMs) });
}
