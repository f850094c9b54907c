import { edgeKey, generationKey, leaversKey, REFILL_LEASE_KEY, TOMBSTONES_KEY } from "../contracts/keys.js";
import type { EdgeState } from "../contracts/ledger.js";
import { FLOOR_MEMBER } from "../kernel/ids.js";
import { DAY, HOUR, SECOND } from "../kernel/time.js";
import type { RedisClient } from "../platform/redis/connect.js";
import type { Fenced } from "../platform/redis/fenced.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { LedgerStore } from "./ledger.js";

/** The log holds events for seven days; what wins over them must live longer. */
const REMEMBER_MS = 7 * DAY + 12 * HOUR;
/** Whoever refills prolongs it; everything that is handled waits for it where that process dies. */
const LEASE_MS = 10 * SECOND;
const LEAVERS_A_PAGE = 1_000;

/** Keeps the ledger in Redis. */
export function createLedgerStore(scripts: Scripts, fenced: Fenced): LedgerStore {
  const { run, command } = scripts;
  return {
    async bury(entries) {
      const complete = await run(
        "bury",
        [TOMBSTONES_KEY],
        [Date.now() - REMEMBER_MS, ...entries.flatMap(({ drop, time }) => [time, drop])],
      );
      return { complete: complete === 1 };
    },
    async deadAmong(drops) {
      const [floor, ...scores] = await command("zmscore", (client) =>
        client.zmscore(TOMBSTONES_KEY, FLOOR_MEMBER, ...drops),
      );
      return { dead: new Set(drops.filter((_, index) => scores[index] != null)), complete: stands(floor) };
    },
    async changeEdge({ follower, following, version, follows }) {
      // A key of its own slot, so a call of its own; first, so that whoever finds the edge gone finds the note too.
      if (!follows) await run("note-leaver", [leaversKey(following)], [Date.now(), REMEMBER_MS, follower]);
      const held = (await run(
        "change-edge",
        [edgeKey(follower, following)],
        [version, follows ? "1" : "0", REMEMBER_MS],
      )) as [string, string];
      return { version: Number(held[0]), follows: held[1] === "1" } satisfies EdgeState;
    },
    async leftAmong(author, users) {
      const held = await command("get-edges", (client) =>
        getAll(
          client,
          scripts.isCluster,
          users.map((user) => edgeKey(user, author)),
        ),
      );
      return users.filter((_, index) => held[index]?.endsWith(":0"));
    },
    async leavers(author, from) {
      // No two have one score, and who is noted again moves towards what is still to be read: nobody is passed by.
      const held = await command("zrangebyscore", (client) =>
        client.zrangebyscore(leaversKey(author), from, "+inf", "WITHSCORES", "LIMIT", 0, LEAVERS_A_PAGE),
      );
      const users = held.filter((_, index) => index % 2 === 0);
      return { users, next: users.length < LEAVERS_A_PAGE ? undefined : Number(held.at(-1)) + 1 };
    },
    async generation(author, otherwise) {
      const key = generationKey(author);
      const held = await command("get", (client) => client.get(key));
      if (held) return held;
      await command("set", (client) => client.set(key, otherwise, "PX", REMEMBER_MS, "NX"));
      return (await command("get", (client) => client.get(key))) ?? otherwise;
    },
    async setGeneration(author, name) {
      await command("set", (client) => client.set(generationKey(author), name, "PX", REMEMBER_MS));
    },
    async isComplete() {
      return stands(await command("zscore", (client) => client.zscore(TOMBSTONES_KEY, FLOOR_MEMBER)));
    },
    async beginRefill(mark) {
      return (await run("begin-refill", [TOMBSTONES_KEY], [mark])) === 1;
    },
    async finishRefill(mark) {
      return (await fenced.one("finish-refill", TOMBSTONES_KEY, [mark, Date.now() - REMEMBER_MS])) === 1;
    },
    async lease(owner) {
      return (await run("hold-lease", [REFILL_LEASE_KEY], [owner, LEASE_MS])) === 1;
    },
    async release(owner) {
      await run("release-lease", [REFILL_LEASE_KEY], [owner]).catch(() => undefined);
    },
  };
}

/** A negative floor marks a refill under way. */
const stands = (floor: string | null | undefined): boolean => floor != null && Number(floor) >= 0;

async function getAll(client: RedisClient, isCluster: boolean, keys: readonly string[]): Promise<(string | null)[]> {
  if (keys.length === 0) return [];
  if (!isCluster) return client.mget(...keys);
  return Promise.all(keys.map((key) => client.get(key)));
}
