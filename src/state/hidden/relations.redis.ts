import { createCache } from "../../contracts/caches.js";
import type { Byline } from "../../contracts/timelines.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { withDeadline } from "../../kernel/deadlines.js";
import { encodeId } from "../../kernel/ids.js";
import { SingleFlight } from "../../kernel/sharing.js";
import { MINUTE, SECOND } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { runForHomes } from "../entries/home-looks.redis.js";
import { script } from "../scripts.redis.js";
import { type ChangeSources, createChangeHidden } from "./changes.redis.js";
import type { HiddenStore } from "./hidden.redis.js";

const HIDDEN_AMONG = script("hidden-among", import.meta.url);

const FILLS_AT_ONCE = 32;
type ReadHidings = ChangeSources["readHidings"];
type Unanswered = ReturnType<typeof createCache<boolean>>;

/** Time limit of a question to the users service, for which changes of others wait. */
export const ASK_MS = SECOND / 2;
/** Time limit of an answer, for which later notifications of others wait. */
const PATIENCE_MS = SECOND / 4;
const FAILED_MIN_MS = 5 * SECOND;
const FAILED_MAX_MS = MINUTE;

export interface Viewers {
  readonly seeing: readonly string[];
  /** Users of whom Redis does not know whether they see the drop. */
  readonly unknown: readonly string[];
}

export type RelationWriter = ReturnType<typeof createRelationWriter>;

/**
 * Returns a function that asks whom users hide. The wait for a user ends after `patienceMs`, and for all of them once
 * nobody has been answered for that time; the questions continue. A user whose answer is late, or has failed within the
 * time that it took, is not waited for again.
 */
function createLearn(hidden: Pick<HiddenStore, "fill">, failed: Unanswered, patienceMs: number) {
  const flight = new SingleFlight<boolean>();
  const fill = async (user: string): Promise<void> => {
    const begunAt = performance.now();
    try {
      await hidden.fill(user);
      failed.delete(user);
    } catch (error) {
      const took = performance.now() - begunAt;
      failed.set(user, true, { ttl: Math.min(FAILED_MAX_MS, Math.max(FAILED_MIN_MS, took)) });
      throw error;
    }
  };
  const isAnswered = async (user: string): Promise<boolean> => {
    const answered = await withDeadline(fill(user), Date.now() + patienceMs).then(
      () => true,
      () => false,
    );
    if (!answered && !failed.has(user)) failed.set(user, true);
    return answered;
  };
  return async (users: readonly string[]): Promise<void> => {
    let answeredAt = performance.now();
    await mapLimited(users, FILLS_AT_ONCE, async (user) => {
      if (failed.has(user) || performance.now() - answeredAt > patienceMs) return;
      if (await flight.run(user, () => isAnswered(user))) answeredAt = performance.now();
    });
  };
}

interface WriterDeps {
  readonly scripts: Scripts;
  readonly hidden: Pick<HiddenStore, "fill" | "known">;
  readonly sources: Omit<ChangeSources, "readAllHidings">;
}

export function createRelationWriter(
  { scripts, hidden, sources }: WriterDeps,
  ttlMs: number,
  patienceMs = PATIENCE_MS,
) {
  const { isApart, readHidings } = sources;
  const unanswered = createCache<boolean>("unansweredRelations", { sizeOf: () => 0, ttl: FAILED_MAX_MS });
  const soon =
    (read: ReadHidings): ReadHidings =>
    async (user, targets) => {
      if (unanswered.has(user)) return undefined;
      return withDeadline(read(user, targets), Date.now() + ASK_MS).catch(() => {
        unanswered.set(user, true, { ttl: FAILED_MIN_MS });
        return undefined;
      });
    };
  const readAllHidings: ReadHidings = async (user, targets) => {
    const all = await hidden.known(user);
    const known = await all.among(targets.map((author) => ({ author })));
    return targets.map((target) => ({ hiding: known.hidingOf(target) }));
  };
  const look = (users: readonly string[], { author, original }: Byline): Promise<number[]> => {
    const before = [encodeId(author), original === undefined ? "" : encodeId(original)];
    return runForHomes<number>(scripts, HIDDEN_AMONG, users, before);
  };
  return {
    /** Returns those of these users who see a drop, and those whose hidden users Redis does not know. */
    async viewersAmong(users: readonly string[], by: Byline): Promise<Viewers> {
      const answers = await look(users, by);
      return {
        seeing: users.filter((_, index) => answers[index] === 0),
        unknown: users.filter((_, index) => answers[index] === -1),
      };
    },
    learn: createLearn(hidden, unanswered, patienceMs),
    change: createChangeHidden(
      scripts,
      { isApart, readHidings: soon(readHidings), readAllHidings: soon(readAllHidings) },
      ttlMs,
    ),
  };
}
