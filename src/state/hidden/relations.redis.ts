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

/** Answer of hidden-among.lua about a user whose home has no copy of whom the user follows. */
const NO_COPY = -2;
/** Maximum number of users for whom the users service is asked about one reply; others read their pages again. */
const MOST_ASKED = 64;
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
  /** Users of whom it is not known whether they see the drop. */
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

type AskFollows = (users: readonly string[], other: string) => Promise<ReadonlyMap<string, boolean>>;

/**
 * Returns a function that asks which users follow another one, a few of them. A user whose answer is late, or has
 * failed, is not asked about again for some seconds.
 */
function createAskFollows({ isFollowing }: WriterDeps["sources"], failed: Unanswered, patienceMs: number): AskFollows {
  return async (users, other) => {
    const asked = users.filter((user) => !failed.has(user)).slice(0, MOST_ASKED);
    const answers = await mapLimited(asked, FILLS_AT_ONCE, async (user) =>
      withDeadline(isFollowing(user, other), Date.now() + patienceMs).catch(() => {
        failed.set(user, true, { ttl: FAILED_MIN_MS });
        return undefined;
      }),
    );
    const answered = asked.map((user, index) => [user, answers[index]] as const);
    return new Map(answered.filter((pair): pair is [string, boolean] => pair[1] !== undefined));
  };
}

interface ViewersDeps extends Pick<WriterDeps, "scripts" | "judgesReplies"> {
  readonly learn: (users: readonly string[]) => Promise<void>;
  readonly askFollows: AskFollows;
}

function createViewers({ scripts, judgesReplies, learn, askFollows }: ViewersDeps) {
  const look = (users: readonly string[], { author, original, parent }: Byline): Promise<number[]> => {
    const named = [author, original, parent].map((user) => (user === undefined ? "" : encodeId(user)));
    const before = [...named, judgesReplies ? 1 : 0];
    return runForHomes<number>(scripts, HIDDEN_AMONG, users, { before });
  };
  const viewersOf = (
    users: readonly string[],
    answers: readonly number[],
    follows: ReadonlyMap<string, boolean>,
  ): Viewers => ({
    seeing: users.filter((user, index) => answers[index] === 0 || follows.get(user)),
    unknown: users.filter((user, index) => (answers[index] ?? -1) < 0 && !follows.has(user)),
  });
  return {
    /** Returns those of these users who see a drop, and those of whom Redis does not know it. */
    viewersAmong: async (users: readonly string[], by: Byline): Promise<Viewers> =>
      viewersOf(users, await look(users, by), new Map()),
    /** Asks the users service about users whom {@link viewersAmong} does not know, and returns the same. */
    async learnedAmong(users: readonly string[], by: Byline): Promise<Viewers> {
      if (users.length === 0) return { seeing: users, unknown: users };
      await learn(users);
      const answers = await look(users, by);
      const undecided = users.filter((_, index) => answers[index] === NO_COPY);
      return viewersOf(users, answers, await askFollows(undecided, by.parent ?? ""));
    },
  };
}

interface WriterDeps {
  readonly scripts: Scripts;
  readonly hidden: Pick<HiddenStore, "fill" | "known">;
  readonly sources: Omit<ChangeSources, "readAllHidings"> & {
    /** Resolves to true if the users service says that the user follows the other. */
    readonly isFollowing: (user: string, other: string) => Promise<boolean>;
  };
  /** True: homes leave out replies to those whom their users do not follow. */
  readonly judgesReplies: boolean;
}

export function createRelationWriter(
  { scripts, hidden, sources, judgesReplies }: WriterDeps,
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
  const learn = createLearn(hidden, unanswered, patienceMs);
  const askFollows = createAskFollows(sources, unanswered, patienceMs);
  return {
    ...createViewers({ scripts, judgesReplies, learn, askFollows }),
    learn,
    change: createChangeHidden(
      scripts,
      { isApart, readHidings: soon(readHidings), readAllHidings: soon(readAllHidings) },
      ttlMs,
    ),
  };
}
