import { randomInt } from "node:crypto";
import { LRUCache } from "lru-cache";
import { createCache } from "../contracts/caches.js";
import { type Clock, pause, SECOND } from "../kernel/time.js";

/** Maximum age of an outcome that counts. */
const WINDOW_MS = 30 * SECOND;
/**
 * Number of subjects that count. A small number, so that earlier answers do not outvote an upstream that breaks now.
 */
const RECENT = 20;

/**
 * Tells an upstream that is broken from one that fails for one user. Counts subjects (users, authors), not calls:
 * retries for one subject do not look like many failures.
 */
export function createMajority(now: Clock = () => performance.now()) {
  const latest = new LRUCache<string, { readonly ok: boolean; readonly at: number }>({ max: RECENT });
  return {
    note: (subject: string, ok: boolean): void => void latest.set(subject, { ok, at: now() }),
    failing(): boolean {
      const since = now() - WINDOW_MS;
      let failed = 0;
      let succeeded = 0;
      for (const { ok, at: time } of latest.values()) {
        if (time < since) continue;
        if (ok) succeeded++;
        else failed++;
      }
      return failed > 1 && failed > succeeded;
    },
  };
}

type Again = (deadline: number) => Promise<unknown>;

/** Result of a probe: the number of other subjects asked again just now, and how many of them were answered. */
interface Sample {
  readonly asked: number;
  readonly answered: number;
}

const NO_SAMPLE: Sample = { asked: 0, answered: 0 };

/** Memory of a repeatable call with its request, bytes. Calls about one user never name many others. */
const CALL_BYTES = 8_000;
const PROBE_EVERY_MS = SECOND / 4;
/** Time within which most prompt answers arrive. */
const PROMPTLY_MS = SECOND;
/** Timeout of a probe call, as of other calls: an upstream that answers everybody late still answers. */
const PROBE_TIMEOUT_MS = 5 * SECOND;

/**
 * Repeats calls about other subjects that were answered before, to find out if the upstream or the subject is at fault.
 * The latest outcomes are not enough: lists that were read are cached, so most of the latest calls are those that fail,
 * and a few failing subjects would look like an outage.
 */
export function createProbe(
  majority: Pick<ReturnType<typeof createMajority>, "note">,
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
        const others = drawn(
          [...known.entries()].filter(([subject]) => subject !== failed),
          most,
        );
        if (others.length > 0) asked = now();
        isAsking = true;
        asking = sampled(others);
      }
      return asking;
    },
  };

  async function sampled(others: readonly (readonly [string, Again])[]): Promise<Sample> {
    let answered = 0;
    const calls = others.map(async (other) => {
      if (await again(other)) answered++;
    });
    const ended = Promise.all(calls).finally(() => {
      isAsking = false;
    });
    await Promise.race([ended, pause(PROMPTLY_MS)]);
    if (2 * answered < others.length) await ended;
    return { asked: others.length, answered };
  }

  async function again([subject, call]: readonly [string, Again]): Promise<boolean> {
    const answered = await call(now() + PROBE_TIMEOUT_MS).then(
      () => true,
      () => false,
    );
    majority.note(subject, answered);
    return answered;
  }
}

function drawn<T>(from: T[], most: number): T[] {
  const count = Math.min(most, from.length);
  return Array.from({ length: count }, () => from.splice(randomInt(from.length), 1)).flat();
}

interface Classification {
  /** True if most subjects fail: all work waits. */
  readonly isOutage: boolean;
  /** True if other subjects are answered, as far as is known: work about them does not wait. */
  readonly isOfOne: boolean;
}

/** Minimum number of answers that outweigh the latest outcomes. */
const ENOUGH = 3;

/** Compares the failure of one subject to the outcomes of others. */
export function classify({ asked, answered }: Sample, isFailing: boolean): Classification {
  const areMostAnswered = 2 * answered >= asked;
  const areAllAnswered = answered >= ENOUGH && answered === asked;
  return {
    isOutage: !areMostAnswered || (isFailing && !areAllAnswered),
    isOfOne: asked > 0 ? areMostAnswered : !isFailing,
  };
}

export type OutageDetector = ReturnType<typeof createOutageDetector>;

/** Detects outages from the outcomes of calls that are reported to it. */
export function createOutageDetector({ most = ENOUGH }: { readonly most?: number } = {}) {
  const majority = createMajority();
  const probe = createProbe(majority, { most });
  return {
    answered(subject: string, again?: Again): void {
      majority.note(subject, true);
      if (again) probe.remember(subject, again);
    },
    failed: (subject: string): void => majority.note(subject, false),
    ofFailure: async (subject: string): Promise<Classification> =>
      classify(await probe.ask(subject), majority.failing()),
    ofFailureNow: (): Classification => classify(NO_SAMPLE, majority.failing()),
  };
}
