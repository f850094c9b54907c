import { hiddenKey, homeKey } from "../contracts/keys.js";
import type { Byline } from "../contracts/timelines.js";
import { mapLimited } from "../kernel/concurrency.js";
import { encodeId } from "../kernel/ids.js";
import { SECOND } from "../kernel/time.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import type { Hiding } from "../records/hidden.js";
import { addHider, type HiddenStore } from "../records/hidden.redis.js";
import { createRemovalNotes } from "../records/removal-notes.redis.js";
import { runForHomes } from "./writer.redis.js";

const CHANGE_HIDDEN = script("change-hidden", import.meta.url);
const HIDDEN_AMONG = script("hidden-among", import.meta.url);

const FILLS_AT_ONCE = 32;
/** Notifications of others wait for it. */
const FILL_MS = SECOND;

/** A drop of `target` is hidden from `user` by now, or may be shown again (`hiding` unset). */
export interface HidingChange {
  readonly user: string;
  readonly target: string;
  readonly hiding: Hiding | undefined;
}

export interface Judged {
  readonly seeing: readonly string[];
  /** The users service does not tell whether these see it. */
  readonly unknown: readonly string[];
}

export type RelationWriter = ReturnType<typeof createRelationWriter>;

export function createRelationWriter(scripts: Scripts, hidden: Pick<HiddenStore, "fill" | "known">, ttlMs: number) {
  const { run, command } = scripts;
  const notes = createRemovalNotes(scripts);
  const look = async (users: readonly string[], { author, original }: Byline): Promise<Map<string, number>> => {
    const before = [encodeId(author), original === undefined ? "" : encodeId(original)];
    const answers = await runForHomes<number>(scripts, HIDDEN_AMONG, users, before);
    return new Map(users.map((user, at) => [user, answers[at] as number]));
  };
  // A user who cannot be judged in time is unknown.
  const fill = (user: string): Promise<void> => hidden.fill(user, Date.now() + FILL_MS).catch(() => undefined);
  return {
    /** Fan-out looks for hiders first: they are added before the home goes. */
    async change({ user, target, hiding }: HidingChange, isListening: boolean): Promise<void> {
      if (hiding) await addHider({ command }, target, user, ttlMs);
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
      const known = await hidden.known(user, Date.now() + FILL_MS).catch(() => undefined);
      return changes.map((change) => (known ? { ...change, hiding: known.hidingOf(change.target) } : change));
    },
    /** Tells which of these users see a drop. */
    async judge(users: readonly string[], by: Byline): Promise<Judged> {
      const first = await look(users, by);
      const asked = users.filter((user) => first.get(user) === -1);
      await mapLimited(asked, FILLS_AT_ONCE, fill);
      const answers = new Map([...first, ...(asked.length > 0 ? await look(asked, by) : [])]);
      return {
        seeing: users.filter((user) => answers.get(user) === 0),
        unknown: users.filter((user) => answers.get(user) === -1),
      };
    },
  };
}
