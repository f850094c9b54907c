import { randomInt } from "node:crypto";
import { LRUCache } from "lru-cache";
import { createCache } from "../contracts/caches.js";
import { AppError, oneLine, subjectOf } from "../kernel/errors.js";
import { type Clock, pause, SECOND } from "../kernel/time.js";

/** How calls about other subjects (users, authors) end. `mixed`: most are answered, but most of the latest failed. */
export type Others = "answered" | "mixed" | "failing";

type Failure = "answer" | "refusal" | "silence" | "error";

/**
 * Decision whose fault a failed call is:
 *
 * | Failure | Others `answered` | `mixed` | `failing` |
 * |---|---|---|---|
 * | `answer`: UNIMPLEMENTED, or more than a message may hold | retry | retry | retry |
 * | `refusal`: INVALID_ARGUMENT, NOT_FOUND | retry | retry | outage |
 * | `silence`: UNAVAILABLE, or an earlier call about the subject still waits | subject | subject | outage |
 * | `error`: each other status | retry | subject | outage |
 *
 * A message that meets the fault (delivery/verdict.ts):
 *
 * | Fault | Error | Slot | Attempt | Delay |
 * |---|---|---|---|---|
 * | `outage` | `unavailable` | keeps it | returned | up to 0.2 s, growing to 5 s |
 * | `subject` | `unavailable`, names the subject | leaves it | returned | up to 1.2 s, growing to 5 min; 100 a second |
 * | `retry` | `failed` | leaves it | spent | up to TIMELINE_RETRY_BASE_MS, growing to 30 s; at least as long as a slow call took |
 *
 * Other subjects are asked again, unless a reader waits: then the latest outcomes alone decide, and nothing is `mixed`.
 */
export const FAULTS: Readonly<Record<Failure, Readonly<Record<Others, "outage" | "subject" | "retry">>>> = {
  answer: { answered: "retry", mixed: "retry", failing: "retry" },
  refusal: { answered: "retry", mixed: "retry", failing: "outage" },
  silence: { answered: "subject", mixed: "subject", failing: "outage" },
  error: { answered: "retry", mixed: "subject", failing: "outage" },
};

/** Result of a probe: the number of other subjects asked again just now, and how many of them were answered. */
interface Sample {
  readonly asked: number;
  readonly answered: number;
}

const NO_SAMPLE: Sample = { asked: 0, answered: 0 };
/** Minimum number of answers that outweigh the latest outcomes. */
const ENOUGH = 3;

export function othersOf({ asked, answered }: Sample, areMostFailing: boolean): Others {
  if (asked === 0 ? areMostFailing : 2 * answered < asked) return "failing";
  return areMostFailing && (answered < ENOUGH || answered < asked) ? "mixed" : "answered";
}

/** Maximum age of an outcome that counts. */
const WINDOW_MS = 30 * SECOND;
/**
 * Number of subjects that count. A small number, so that earlier answers do not outvote an upstream that breaks now.
 */
const RECENT = 20;

/** Counts the latest outcome of each subject, not calls: retries for one subject do not look like many failures. */
export function createMajority(now: Clock = () => performance.now()) {
  const latest = new LRUCache<string, { readonly ok: boolean; readonly at: number }>({ max: RECENT });
  return {
    note: (subject: string, ok: boolean): void => void latest.set(subject, { ok, at: now() }),
    failing(): boolean {
      const since = now() - WINDOW_MS;
      const outcomes = [...latest.values()].filter(({ at: time }) => time >= since);
      const failed = outcomes.filter(({ ok }) => !ok).length;
      return failed > 1 && 2 * failed > outcomes.length;
    },
  };
}

type Again = (deadline: number) => Promise<unknown>;

/** Memory of a repeatable call with its request, bytes. Calls about one user never name many others. */
const CALL_BYTES = 8_000;
const PROBE_EVERY_MS = SECOND / 4;
/** Time within which most prompt answers arrive. */
const PROMPTLY_MS = SECOND;
/** Timeout of a probe call, as of other calls: an upstream that answers everybody late still answers. */
const PROBE_TIMEOUT_MS = 5 * SECOND;

/**
 * Repeats calls about other subjects that were answered before. The latest outcomes are not enough: lists that were read
 * are cached, so most of the latest calls are those that fail, and a few failing subjects would look like an outage.
 */
export function createProbe(
  { note }: Pick<ReturnType<typeof createMajority>, "note">,
  { most, now = Date.now }: { readonly most: number; readonly now?: Clock },
) {
  // Room for about 250, so that subjects which still answer do not displace those which stopped answering.
  const known = createCache<Again>("answeredCalls", { sizeOf: () => CALL_BYTES });
  let asked = Number.NEGATIVE_INFINITY;
  let isAsking = false;
  let asking = Promise.resolve(NO_SAMPLE);
  return {
    remember: (subject: string, again: Again): void => void known.set(subject, again),
    /** Asks at most `most` other subjects. Within 250 ms, and while a probe runs, the last result counts. */
    ask(failed: string): Promise<Sample> {
      // An old answer must not count for longer after the clock was set back.
      if (!isAsking && Math.abs(now() - asked) >= PROBE_EVERY_MS) {
        const others = [...known.entries()].filter(([subject]) => subject !== failed);
        const drawn = Array.from({ length: Math.min(most, others.length) }, () =>
          others.splice(randomInt(others.length), 1),
        ).flat();
        if (drawn.length > 0) asked = now();
        isAsking = true;
        asking = sampled(drawn);
      }
      return asking;
    },
  };

  async function sampled(others: readonly (readonly [string, Again])[]): Promise<Sample> {
    let answered = 0;
    const calls = others.map(async ([subject, again]) => {
      const isAnswered = await again(now() + PROBE_TIMEOUT_MS).then(
        () => true,
        () => false,
      );
      note(subject, isAnswered);
      if (isAnswered) answered++;
    });
    const ended = Promise.all(calls).finally(() => {
      isAsking = false;
    });
    await Promise.race([ended, pause(PROMPTLY_MS)]);
    if (2 * answered < others.length) await ended;
    return { asked: others.length, answered };
  }
}

export type Outcomes = ReturnType<typeof createOutcomes>;

/** Keeps the outcomes of the calls of a method, and tells how {@link Others} fare. */
export function createOutcomes(most = ENOUGH) {
  const majority = createMajority();
  const probe = createProbe(majority, { most });
  return {
    answered(subject: string, again?: Again): void {
      majority.note(subject, true);
      if (again) probe.remember(subject, again);
    },
    failed: (subject: string): void => majority.note(subject, false),
    ask: async (failed: string): Promise<Others> => othersOf(await probe.ask(failed), majority.failing()),
    latest: (): Others => othersOf(NO_SAMPLE, majority.failing()),
  };
}

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
  ended: Promise<unknown> | undefined;
  /** The outcome counts until then. */
  until: number;
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

  constructor(private readonly others: (name: string, subject: string) => Promise<Others>) {}

  /** @throws Busy if the first call is not answered yet */
  async take<T>(name: string, subject: string, call: () => Promise<T>): Promise<T> {
    const key = `${name} ${subject}`;
    const leader = this.#leaders.get(key);
    if (!leader || isOver(leader)) return this.#lead(key, call);
    const msLeft = leader.begunAt + PATIENCE_MS - performance.now();
    if (leader.ended && msLeft > 0) await Promise.race([leader.ended, pause(msLeft)]);
    if (leader.ended) {
      const fault = FAULTS.silence[await this.others(name, subject)];
      throw new Busy("unavailable", `${name}: another call about the same user is not answered yet`, {
        subject: fault === "subject" ? subject : undefined,
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
    const ended = calling.catch(() => undefined);
    const leader: Leader = { begunAt, ended, until: Number.POSITIVE_INFINITY };
    this.#leaders.set(key, leader);
    let countsMs = ANSWERED_MS;
    try {
      return await calling;
    } catch (error) {
      const took = performance.now() - begunAt;
      // An outage ends for all subjects at once, and a fast failure delays nobody.
      countsMs = subjectOf(error) === undefined || took < FAST_MS ? 0 : took;
      leader.error = error;
      throw notBefore(countsMs, error);
    } finally {
      leader.until = performance.now() + countsMs;
      leader.ended = undefined;
    }
  }
}

const isOver = ({ until }: Leader): boolean => until <= performance.now();

/** Work whose failure spends an attempt is retried only when the next call may be sent. */
function notBefore(retryAfterMs: number, error: unknown): unknown {
  if (!(error instanceof AppError) || error.subject === undefined) return error;
  const { code, message, publicMessage, subject, cause } = error;
  return new AppError(code, message, { cause, publicMessage, subject, retryAfterMs });
}
