import { createCache } from "../contracts/caches.js";
import { hiddenKey, homeKey } from "../contracts/keys.js";
import type { Byline } from "../contracts/timelines.js";
import { mapLimited } from "../kernel/concurrency.js";
import { withDeadline } from "../kernel/deadlines.js";
import { encodeId } from "../kernel/ids.js";
import { SingleFlight } from "../kernel/sharing.js";
import { MINUTE, SECOND } from "../kernel/time.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import type { Hiding } from "../records/hidden.js";
import { addHider, type HiddenStore } from "../records/hidden.redis.js";
import { createRemovalNotes } from "../records/removal-notes.redis.js";
import { runForHomes } from "./writer.redis.js";

const CHANGE_HIDDEN = script("change-hidden", import.meta.url);
const HIDDEN_AMONG = script("hidden-among", import.meta.url);

const FILLS_AT_ONCE = 32;
const FILL_MS = SECOND;

/** Later notifications of others wait for it. */
const PATIENCE_MS = SECOND / 4;
const FAILED_MIN_MS = 2 * SECOND;
const FAILED_MAX_MS = MINUTE;

/** A drop of `target` is hidden from `user` by now, or may be shown again (`hiding` unset). */
export interface HidingChange {
  readonly user: string;
  readonly target: string;
  readonly hiding: Hiding | undefined;
}

export interface Judged {
  readonly seeing: readonly string[];
  /** Redis does not know whether these see it. */
  readonly unknown: readonly string[];
}

export type RelationWriter = ReturnType<typeof createRelationWriter>;

/**
 * Makes the function that asks whom users hide. The wait for a user ends after `PATIENCE_MS`, and for all of them once
 * nobody has been answered for so long; the questions go on. Nobody waits again for a user whose answer is late, or has
 * failed within the time that it took.
 */
export function createLearn(hidden: Pick<HiddenStore, "fill">) {
  const flight = new SingleFlight<boolean>();
  const failed = createCache<boolean>("unansweredRelations", { sizeOf: () => 0, ttl: FAILED_MAX_MS });
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
    const answered = await withDeadline(fill(user), Date.now() + PATIENCE_MS).then(
      () => true,
      () => false,
    );
    if (!answered && !failed.has(user)) failed.set(user, true);
    return answered;
  };
  return async (users: readonly string[]): Promise<void> => {
    let answeredAt = performance.now();
    await mapLimited(users, FILLS_AT_ONCE, async (user) => {
      if (failed.has(user) || performance.now() - answeredAt > PATIENCE_MS) return;
      if (await flight.run(user, () => isAnswered(user))) answeredAt = performance.now();
    });
  };
}

export function createRelationWriter(scripts: Scripts, hidden: Pick<HiddenStore, "fill" | "known">, ttlMs: number) {
  const { run, command } = scripts;
  const notes = createRemovalNotes(scripts);
  const look = (users: readonly string[], { author, original }: Byline): Promise<number[]> => {
    const before = [encodeId(author), original === undefined ? "" : encodeId(original)];
    return runForHomes<number>(scripts, HIDDEN_AMONG, users, before);
  };
  return {
    /** Fan-out looks for hiders first: they are added before the home goes. */
    async change({ user, target, hiding }: HidingChange, isListening: boolean): Promise<void> {
      if (hiding) await addHider(scripts, [target], user, ttlMs);
      const home = homeKey(user);
      if (hiding && isListening)
        await notes.note(home, await command("zrange", (client) => client.zrange(home, "0", "-1")));
      await run(CHANGE_HIDDEN, [home, hiddenKey(user)], [encodeId(target), hiding ?? "", ttlMs]);
    },
    /**
     * Returns the changes as the users service says: an event may be late. While it is unavailable the events count.
     */
    async inForce(changes: readonly HidingChange[]): Promise<HidingChange[]> {
      const { user } = changes[0] as HidingChange;
      const bylines = changes.map(({ target }) => ({ author: target }));
      const known = await hidden
        .known(user, Date.now() + FILL_MS)
        .then((all) => all.among(bylines))
        .catch(() => undefined);
      return changes.map((change) => (known ? { ...change, hiding: known.hidingOf(change.target) } : change));
    },
    /** Tells which of these users see a drop, as far as Redis knows whom they hide. */
    async judge(users: readonly string[], by: Byline): Promise<Judged> {
      const answers = await look(users, by);
      return {
        seeing: users.filter((_, at) => answers[at] === 0),
        unknown: users.filter((_, at) => answers[at] === -1),
      };
    },
    learn: createLearn(hidden),
  };
}
