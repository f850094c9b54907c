import { randomInt } from "node:crypto";
import type { TimelineEvent } from "../../contracts/events.js";
import type { EdgeChange } from "../../contracts/fences.js";
import { AppError } from "../../kernel/errors.js";
import { underLease } from "../../kernel/lease.js";
import type { Logger } from "../../kernel/logger.js";
import { SECOND } from "../../kernel/time.js";
import type { Deletion, FenceStore, ReadHistory } from "./ports.js";

export interface RefillDeps {
  readonly store: FenceStore;
  readonly readHistory: ReadHistory;
  readonly log: Logger;
}

const PROGRESS_EVERY_MS = 3 * SECOND;
const EVENTS_A_BATCH = 1_000;
/** While these are written the log is read on; more than that is not held in memory. */
const BATCHES_UNDER_WAY = 4;

/**
 * Refills what the fences have lost from the log. One process does it; the others see it as an outage, and try again.
 * As a rebuild does, it plants a mark first: what is lost once more meanwhile takes the mark along, and is not vouched
 * for.
 */
export async function refill(deps: RefillDeps): Promise<void> {
  if (!(await underLease(deps.store.lease, () => refillOnce(deps))))
    throw new AppError("unavailable", "the fences are being refilled from the log");
}

async function refillOnce({ store, readHistory, log }: RefillDeps): Promise<void> {
  const progress = { events: 0, upTo: 0 };
  const started = performance.now();
  const fields = () => ({
    events: progress.events,
    upTo: new Date(progress.upTo).toISOString(),
    seconds: Math.round(performance.now() - started) / 1_000,
  });
  const reporting = setInterval(
    () => log.info(fields(), "the fences (tombstones and follow edges) are being refilled from the log"),
    PROGRESS_EVERY_MS,
  );
  try {
    const mark = -randomInt(1, 2 ** 47);
    const lost = await store.beginRefill(mark);
    if (lost === 0) return;
    log.warn({ keys: lost }, "the fences (tombstones and follow edges) were lost, and are refilled from the log");
    const batches = new Batches(store);
    await readHistory(async (event, time) => {
      progress.events++;
      progress.upTo = time;
      await batches.take(event, time);
    });
    await batches.end();
    if ((await store.finishRefill(mark)) < lost)
      throw new AppError("unavailable", "the fences were lost while they were refilled");
    log.info(fields(), "the fences (tombstones and follow edges) are refilled from the log");
  } finally {
    clearInterval(reporting);
  }
}

/** Collects events, and writes them some at a time while others are still being written. Their order does not matter. */
class Batches {
  #deletions: Deletion[] = [];
  #edges: EdgeChange[] = [];
  readonly #underWay = new Set<Promise<void>>();
  #failure: { readonly error: unknown } | undefined;

  constructor(private readonly store: FenceStore) {}

  async take({ name, payload }: TimelineEvent, time: number): Promise<void> {
    if (name === "drop_deleted") this.#deletions.push({ drop: payload.drop_id, time });
    if (name === "user_followed" || name === "user_unfollowed") {
      const { follower_id: follower, following_id: following, version } = payload;
      // Nobody leaves themselves: their drops stay in their home.
      if (follower !== following) this.#edges.push({ follower, following, version, follows: name === "user_followed" });
    }
    if (this.#deletions.length + this.#edges.length < EVENTS_A_BATCH) return;
    this.#write();
    if (this.#underWay.size >= BATCHES_UNDER_WAY) await Promise.race(this.#underWay);
    if (this.#failure) throw this.#failure.error;
  }

  async end(): Promise<void> {
    this.#write();
    await Promise.all(this.#underWay);
    if (this.#failure) throw this.#failure.error;
  }

  #write(): void {
    const writing: Promise<void> = this.store
      .remember({ deletions: this.#deletions, edges: this.#edges })
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => this.#underWay.delete(writing));
    this.#underWay.add(writing);
    this.#deletions = [];
    this.#edges = [];
  }
}
