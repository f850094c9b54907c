import { randomInt } from "node:crypto";
import { LRUCache } from "lru-cache";
import { createCache } from "../contracts/caches.js";
import { type Clock, pause, SECOND } from "../kernel/time.js";

/** Outcomes older than this do not count. */
const WINDOW_MS = 30 * SECOND;
/** The number is small, so that earlier answers do not outvote an upstream that breaks now. */
const RECENT = 20;

/**
 * Tells an upstream that is broken from one that fails for one user. Counts subjects (users, authors), not calls: retries
 * for one subject do not look like many failures.
 */
export function createMajority(now: Clock = () => performance.now()) {
  const latest = new LRUCache<string, { readonly ok: boolean; readonly at: number }>({ max: RECENT });
  return {
    note: (subject: string, ok: boolean): void => void latest.set(subject, { ok, at: now() }),
    failing(): boolean {
      const since = now() - WINDOW_MS;
      let failed = 0;
      let succeeded = 0;
      for (const { ok, at } of latest.values()) {
        if (at < since) continue;
        if (ok) succeeded++;
        else failed++;
      }
      return failed > 1 && failed > succeeded;
    },
  };
}

type Again = (deadline: number) => Promise<unknown>;

/** The sample counts the others that were asked again just now, and those of them that were answered. */
interface Sample {
  readonly asked: number;
  readonly answered: number;
}

const NOBODY: Sample = { asked: 0, answered: 0 };

/** Memory of a call that can be repeated, with its request, bytes: of the calls about one user, none names many others. */
const CALL_BYTES = 8_000;
const PROBE_EVERY_MS = SECOND / 4;
/** Most of those who are answered promptly are answered by then. */
const PROMPTLY_MS = SECOND;
/** Other calls may take as long: an upstream that answers everybody late does answer. */
const PROBE_TIMEOUT_MS = 5 * SECOND;

/**
 * Repeats calls about others that were answered before, to find out whether the upstream or the subject is at fault. Lists
 * that were read are kept, so that the latest calls are mostly those that fail: the latest outcomes alone would make a few
 * subjects that fail an outage.
 */
export function createProbe(
  majority: Pick<ReturnType<typeof createMajority>, "note">,
  { most, now = Date.now }: { readonly most: number; readonly now?: Clock },
) {
  // Room for some 250, so that those who are answered now do not displace those who are not any more.
  const known = createCache<Again>("answeredCalls", { sizeOf: () => CALL_BYTES });
  let asked = Number.NEGATIVE_INFINITY;
  let isAsking = false;
  let asking = Promise.resolve(NOBODY);
  return {
    remember: (subject: string, again: Again): void => void known.set(subject, again),
    /** Asks at most `most` others. Within 250 ms, and while they are asked, the last result counts. */
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

interface Judgement {
  /** Most subjects fail: everything waits. */
  readonly isOutage: boolean;
  /** Others are answered, as far as is known: nothing about them has to wait. */
  readonly isOfOne: boolean;
}

/** So many of a sample outweigh the latest outcomes. */
const ENOUGH = 3;

/** Judges the failure of one subject by those of others. */
export function judged({ asked, answered }: Sample, isFailing: boolean): Judgement {
  const areMostAnswered = 2 * answered >= asked;
  const areAllAnswered = answered >= ENOUGH && answered === asked;
  return {
    isOutage: !areMostAnswered || (isFailing && !areAllAnswered),
    isOfOne: asked > 0 ? areMostAnswered : !isFailing,
  };
}

export type Judge = ReturnType<typeof createJudge>;

/** Judges by the calls that it is told about. */
export function createJudge({ most = ENOUGH }: { readonly most?: number } = {}) {
  const majority = createMajority();
  const probe = createProbe(majority, { most });
  return {
    answered(subject: string, again?: Again): void {
      majority.note(subject, true);
      if (again) probe.remember(subject, again);
    },
    failed: (subject: string): void => majority.note(subject, false),
    ofFailure: async (subject: string): Promise<Judgement> => judged(await probe.ask(subject), majority.failing()),
    ofFailureNow: (): Judgement => judged(NOBODY, majority.failing()),
  };
}
