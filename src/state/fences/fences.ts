import { randomInt } from "node:crypto";
import type { TimelineEvent } from "../../contracts/events.js";
import { paced } from "../../kernel/concurrency.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { underLease } from "../../kernel/lease.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { SingleFlight } from "../../kernel/sharing.js";
import { type Clock, MINUTE, SECOND, sharedNow } from "../../kernel/time.js";
import type { FenceStore, RefillBatch } from "./store.redis.js";
import { type Deletion, type EdgeChange, edgesIn, type Fences } from "./types.js";

/** Yields the deletions and edge changes of the log, oldest first, with the times of their admission. */
export type ReadHistory = () => AsyncIterable<{ readonly event: TimelineEvent; readonly time: number }>;

interface FencesDeps {
  readonly store: FenceStore;
  readonly readHistory: ReadHistory;
  readonly retentionStart?: () => number;
  readonly log: Logger;
}

const PROGRESS_EVERY_MS = 3 * SECOND;
const EVENTS_A_BATCH = 1_000;
/** Maximum number of batches that are written while the log is read on, which bounds the memory. */
const BATCHES_AT_ONCE = 4;

/** Opens the fences. If they were lost, they are refilled from the log before they decide anything. */
export function createFences(deps: FencesDeps): Fences {
  const { store, retentionStart = () => 0 } = deps;
  const flight = new SingleFlight<void>();
  const ensure = (): Promise<void> => flight.run("refill", () => refillFences(deps));
  const certain = async <T>(ask: () => Promise<T | undefined>): Promise<T> => {
    const answer = await ask();
    if (answer !== undefined) return answer;
    await ensure();
    const again = await ask();
    if (again !== undefined) return again;
    throw new AppError("unavailable", "the fences were lost again after they were refilled");
  };
  return {
    retentionStart,
    generations: store.generations,
    renewGenerations: store.renewGenerations,
    allEdges: store.allEdges,
    recordTombstones: (deletions) => certain(() => store.recordTombstones(deletions)),
    tombstonedAmong: async (drops) => (drops.length === 0 ? new Set() : certain(() => store.tombstonedAmong(drops))),
    changeEdges: async (changes) => (changes.length === 0 ? [] : certain(() => store.changeEdges(changes))),
    newestEdges: async (changes) => (changes.length === 0 ? [] : certain(() => store.changeEdges(changes, "look"))),
    async replaceEdges(changes) {
      if (changes.length > 0) await certain(() => store.changeEdges(changes, "replace"));
    },
    unfollowedAmong: async (author, users) =>
      users.length === 0 ? [] : certain(() => store.unfollowedAmong(author, users)),
    async *recentUnfollowers(author, since) {
      for (let from: number | undefined = since; from !== undefined; ) {
        const start: number = from;
        const { users, next } = await certain(() => store.recentUnfollowers(author, start));
        if (users.length > 0) yield users;
        from = next;
      }
    },
    removeDeleted: async (users) => void (await certain(() => store.removeDeleted(users))),
  };
}

/** @throws AppError `unavailable` if another process refills, or a key, and its mark with it, was lost meanwhile */
async function refillFences(deps: FencesDeps): Promise<void> {
  if (!(await underLease(deps.store.lease, () => refillLost(deps))))
    throw new AppError("unavailable", "the fences are being refilled from the log");
}

async function refillLost({ store, readHistory, log }: FencesDeps): Promise<void> {
  const mark = -randomInt(1, 2 ** 47);
  const lost = await store.mark("begin", mark);
  if (lost === 0) return;
  // A new Redis has none of them.
  if (lost < store.keys)
    log.warn(
      { keys: lost },
      "some of the fences (tombstones, follow edges) are missing in Redis; they are refilled from the log",
    );
  const started = performance.now();
  const done = { events: 0, upTo: 0 };
  const fields = () => ({
    events: done.events,
    upTo: new Date(done.upTo).toISOString(),
    seconds: Math.round(performance.now() - started) / SECOND,
  });
  const reporting = setInterval(() => log.info(fields(), "fences are being refilled from the log"), PROGRESS_EVERY_MS);
  try {
    await paced(batchesOf(readHistory(), done), { atOnce: BATCHES_AT_ONCE }, (batch) => store.refill(batch));
  } finally {
    clearInterval(reporting);
  }
  if ((await store.mark("finish", mark)) < lost)
    throw new AppError("unavailable", "the fences were lost while they were refilled");
  if (done.events > 0) log.info(fields(), "fences are refilled from the log");
}

/**
 * Divides the history into batches, which may be written in any order: of two versions of an edge, and of two
 * deletions, one wins.
 */
async function* batchesOf(
  history: ReturnType<ReadHistory>,
  done: { events: number; upTo: number },
): AsyncGenerator<RefillBatch> {
  let deletions: Deletion[] = [];
  let edges: EdgeChange[] = [];
  for await (const { event, time } of history) {
    done.events++;
    done.upTo = time;
    if (event.name === "drop_deleted") {
      const { drop_id: drop, user_id: author } = event.payload;
      deletions.push({ drop, author, time });
    }
    edges.push(...edgesIn(event));
    if (deletions.length + edges.length < EVENTS_A_BATCH) continue;
    yield { deletions, edges };
    deletions = [];
    edges = [];
  }
  yield { deletions, edges };
}

const EVERY_MS = 10 * SECOND;
const UNKNOWN_EVERY_MS = 10 * MINUTE;

/**
 * Follows the time down to which the posts service keeps drops. It never falls, so the last answer is right while the
 * service is unavailable.
 */
export function createRetention(read: () => Promise<number | undefined>, log: Logger, now: Clock = sharedNow) {
  let retentionStart = 0;
  /** Asks the posts service. Resolves to false if it does not know the question. */
  const refresh = async (): Promise<boolean> => {
    const answer = await read();
    // A time in the future would hide every drop.
    if (answer !== undefined && Number.isSafeInteger(answer) && answer <= now())
      retentionStart = Math.max(retentionStart, answer);
    return answer !== undefined;
  };
  return {
    /** Returns ms since the epoch. 0 means that every drop is kept, or that the time is not known yet. */
    retentionStart: (): number => retentionStart,
    refresh,
    follow: (): Loop =>
      startLoop({
        work: async () => ((await refresh()) ? undefined : UNKNOWN_EVERY_MS),
        everyMs: EVERY_MS,
        backoffCapMs: EVERY_MS,
        failed: (error) =>
          log.debug({ error: oneLine(error) }, "the posts service did not answer how long drops are kept"),
        closeMs: SECOND,
      }),
  };
}
