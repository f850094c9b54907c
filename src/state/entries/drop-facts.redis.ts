import { DAY, HOUR } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import {
  actorKey,
  deletedDropKey,
  directDropKey,
  GLOBAL_KEY,
  homeKey,
  LOCAL_KEY,
  removalNotesKey,
  repostedKey,
} from "../keys.js";

/** Time for which the creation time of a deleted drop is stored. */
const DELETED_DROP_TTL_MS = DAY;
/** Time after which the counts of a drop include a repost, or a reply. */
const REPOSTED_TTL_MS = HOUR;

/** Returns true for a direct drop: listeners who are not its recipients must not be told of its deletion. */
export const isDirect = async ({ command }: Scripts, drop: string): Promise<boolean> =>
  (await command("exists", (client) => client.exists(directDropKey(drop)))) > 0;

/** Stores the creation time of a drop that is removed next, so that its id still works as a cursor. */
export async function rememberCreation({ command }: Scripts, drop: string, time: string): Promise<void> {
  await command("set", (client) => client.set(deletedDropKey(drop), time, "PX", DELETED_DROP_TTL_MS));
}

/** Stores facts about drops that the fan-out of a deletion reads. */
export function createDropFacts(scripts: Scripts, ttlMs: number) {
  const { command } = scripts;
  return {
    /** Stores the creation times of drops that are removed next, if a timeline has them. */
    async rememberCreations(authors: ReadonlyMap<string, string | undefined>): Promise<void> {
      const drops = [...authors.keys()];
      const look = (key: string, members: readonly string[]) =>
        command("zmscore", (client) => client.zmscore(key, ...members));
      const inHomes = drops.map((drop) => {
        const author = authors.get(drop);
        return author === undefined ? [] : look(homeKey(author), [drop]);
      });
      const [local, global, ...homes] = await Promise.all([
        look(LOCAL_KEY, drops),
        look(GLOBAL_KEY, drops),
        ...inHomes,
      ]);
      const times = drops.map((_, index) => homes[index]?.[0] ?? local?.[index] ?? global?.[index]);
      await Promise.all(
        drops.flatMap((drop, index) => (times[index] == null ? [] : rememberCreation(scripts, drop, times[index]))),
      );
    },
    /**
     * Returns which of the drops local (and therefore global) or global alone has now, or had until it was removed within
     * the last minutes: a page may remove a deleted drop before its deletion is told.
     */
    async sharedHolding(drops: readonly string[]): Promise<ReadonlyMap<string, "local" | "global">> {
      const scores = (key: string) => command("zmscore", (client) => client.zmscore(key, ...drops));
      // A removal writes its note in the same step: what has left the timeline by now is noted by then.
      const look = async (key: string) => {
        const present = await scores(key);
        if (!present.includes(null)) return present;
        const noted = await scores(removalNotesKey(key));
        return present.map((score, index) => score ?? noted[index]);
      };
      const [local, global] = await Promise.all([look(LOCAL_KEY), look(GLOBAL_KEY)]);
      const holding = new Map<string, "local" | "global">();
      for (const [index, drop] of drops.entries()) {
        if (local[index] != null) holding.set(drop, "local");
        else if (global[index] != null) holding.set(drop, "global");
      }
      return holding;
    },
    async rememberActor(drop: string, actor: string): Promise<void> {
      await command("set", (client) => client.set(actorKey(drop), actor, "PX", ttlMs));
    },
    /** Notes that drops of these authors were reposted, or replied to. */
    async rememberReposted(authors: readonly string[]): Promise<void> {
      const remember = (author: string) =>
        command("set", (client) => client.set(repostedKey(author), "1", "PX", REPOSTED_TTL_MS));
      await Promise.all(authors.map(remember));
    },
    async rememberDirect(drop: string): Promise<void> {
      await command("set", (client) => client.set(directDropKey(drop), "1", "PX", ttlMs));
    },
  };
}
