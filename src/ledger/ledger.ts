import { randomInt, randomUUID } from "node:crypto";
import type { TimelineEvent } from "../contracts/events.js";
import { type EdgeChange, type EdgeState, type Ledger, nameGeneration } from "../contracts/ledger.js";
import { AppError } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { SingleFlight } from "../kernel/single-flight.js";
import { SECOND } from "../kernel/time.js";

/** Well within the ten seconds of the lease. */
const PROLONG_EVERY_MS = 3 * SECOND;

/** What the ledger is kept in. `complete` is false where the tombstones were lost. */
export interface LedgerStore {
  bury(entries: readonly { readonly drop: string; readonly time: number }[]): Promise<{ complete: boolean }>;
  deadAmong(drops: readonly string[]): Promise<{ dead: ReadonlySet<string>; complete: boolean }>;
  changeEdge(change: EdgeChange): Promise<EdgeState>;
  leftAmong(author: string, users: readonly string[]): Promise<string[]>;
  /** Who was noted at `from` or later; `next` is where the rest begins, undefined where there is none. */
  leavers(author: string, from: number): Promise<{ users: string[]; next: number | undefined }>;
  generation(author: string, otherwise: string): Promise<string>;
  setGeneration(author: string, name: string): Promise<void>;
  isComplete(): Promise<boolean>;
  /** Marks the tombstones as being refilled; false where they are complete. */
  beginRefill(mark: number): Promise<boolean>;
  /** Says that the tombstones are complete, if the mark still stands; false where they were lost again. */
  finishRefill(mark: number): Promise<boolean>;
  /** Takes or prolongs the right to refill, for ten seconds; false where another process has it. */
  lease(owner: string): Promise<boolean>;
  release(owner: string): Promise<void>;
}

/** Hands out every deletion and edge change the log holds, oldest first, with the time it was admitted. */
export type ReadHistory = (take: (event: TimelineEvent, time: number) => Promise<void>) => Promise<void>;

interface LedgerOptions {
  readonly store: LedgerStore;
  readonly readHistory: ReadHistory;
  readonly log: Logger;
}

/** Makes the ledger. */
export function createLedger(options: LedgerOptions): Ledger {
  const { store } = options;
  const flight = new SingleFlight<void>();
  const ensure = (): Promise<void> => flight.run("refill", () => refill(options));
  return {
    async bury(drop, time) {
      const { complete } = await store.bury([{ drop, time }]);
      if (!complete) await ensure();
    },
    async deadAmong(drops) {
      if (drops.length === 0) return new Set();
      const found = await store.deadAmong(drops);
      if (found.complete) return found.dead;
      await ensure();
      return (await store.deadAmong(drops)).dead;
    },
    async changeEdge(change) {
      if (!(await store.isComplete())) await ensure();
      return store.changeEdge(change);
    },
    leftAmong: (author, users) => store.leftAmong(author, users),
    async *leavers(author, since) {
      for (let from: number | undefined = since; from !== undefined; ) {
        const { users, next } = await store.leavers(author, from);
        if (users.length > 0) yield users;
        from = next;
      }
    },
    generation: (author) => store.generation(author, nameGeneration()),
    renewGeneration: (author) => store.setGeneration(author, nameGeneration()),
  };
}

/**
 * Refills a lost ledger from the log. One process does it; the others see it
 * as an outage, and try again. As a rebuild does, it plants a mark first: what
 * is lost once more meanwhile takes the mark along, and is not vouched for.
 */
async function refill({ store, readHistory, log }: LedgerOptions): Promise<void> {
  const owner = randomUUID();
  if (!(await store.lease(owner))) throw new AppError("unavailable", "the ledger is being refilled from the log");
  const prolonging = setInterval(() => void store.lease(owner).catch(() => undefined), PROLONG_EVERY_MS);
  try {
    const mark = -randomInt(1, 2 ** 47);
    if (!(await store.beginRefill(mark))) return;
    let count = 0;
    await readHistory(async (event, time) => {
      count++;
      await remember(store, event, time);
    });
    if (!(await store.finishRefill(mark)))
      throw new AppError("unavailable", "the ledger was lost while it was refilled");
    log.info({ count }, "the ledger of deletions and follows was empty and is refilled from the log");
  } finally {
    clearInterval(prolonging);
    await store.release(owner);
  }
}

async function remember(store: LedgerStore, event: TimelineEvent, time: number): Promise<void> {
  switch (event.name) {
    case "drop_deleted":
      await store.bury([{ drop: event.payload.drop_id, time }]);
      return;
    case "user_followed":
    case "user_unfollowed":
      // Nobody leaves themselves: their drops stay in their home.
      if (event.payload.follower_id === event.payload.following_id) return;
      await store.changeEdge({
        follower: event.payload.follower_id,
        following: event.payload.following_id,
        version: event.payload.version,
        follows: event.name === "user_followed",
      });
      return;
    default:
      return;
  }
}
