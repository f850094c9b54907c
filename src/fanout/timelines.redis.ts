import {
  actorKey,
  buriedKey,
  GLOBAL_KEY,
  HOME_PREFIX,
  homeKey,
  LOCAL_KEY,
  SHARED_PREFIX,
  SHARED_TOKENS,
} from "../contracts/keys.js";
import { FLOOR_MEMBER } from "../kernel/ids.js";
import { chunked } from "../kernel/mapped.js";
import { DAY } from "../kernel/time.js";
import type { Fenced } from "../platform/redis/fenced.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { Entry, TimelineWriter } from "./ports.js";

interface WriterOptions {
  readonly maxEntries: number;
  /** Time to live of a home timeline nobody reads, in ms. */
  readonly ttlMs: number;
  /** Write only to home timelines somebody has read since they were last lost. */
  readonly activeOnly: boolean;
}

const BURIED_TTL_MS = DAY;
const LOOKS_AT_ONCE = 500;

/** Trimming one entry at every insert halves the rate on full timelines; five percent at once does not. */
const TRIM_TO = 0.95;

/** Writes timelines into Redis, a packed list of keys a call. */
export function createTimelineWriter(scripts: Scripts, fenced: Fenced, options: WriterOptions): TimelineWriter {
  const limits = (ttl: number, activeOnly: boolean): (string | number)[] => [
    options.maxEntries,
    Math.ceil(options.maxEntries * TRIM_TO),
    ttl,
    activeOnly ? "1" : "0",
  ];
  const homeLimits = limits(options.ttlMs, options.activeOnly);
  const sharedLimits = limits(0, false);
  const flat = (entries: readonly Entry[]): (string | number)[] => entries.flatMap(({ drop, score }) => [score, drop]);
  return {
    async addHome({ keys }, entries) {
      if (entries.length === 0) return;
      await fenced.many({ script: "add-entries", prefix: HOME_PREFIX, keys, before: homeLimits, after: flat(entries) });
    },
    async removeHome({ keys }, drops) {
      await fenced.many({ script: "remove-entries", prefix: HOME_PREFIX, keys, before: [], after: drops });
    },
    async holdersAmong(users, drop) {
      const holders: string[] = [];
      for (const some of chunked(users, LOOKS_AT_ONCE)) {
        const look = (user: string) => scripts.command("zscore", (client) => client.zscore(homeKey(user), drop));
        const scores = await Promise.all(some.map(look));
        holders.push(...some.filter((_, index) => scores[index] != null));
      }
      return holders;
    },
    async addShared(timelines, entry) {
      const keys = [timelines.map((name) => SHARED_TOKENS[name]).join(",")];
      await fenced.many({
        script: "add-entries",
        prefix: SHARED_PREFIX,
        keys,
        before: sharedLimits,
        after: flat([entry]),
      });
    },
    async removeShared(drop) {
      const keys = [`${SHARED_TOKENS.local},${SHARED_TOKENS.global}`];
      await fenced.many({ script: "remove-entries", prefix: SHARED_PREFIX, keys, before: [], after: [drop] });
    },
    async interruptRebuild(user) {
      const floor = await scripts.run("interrupt-rebuild", [homeKey(user)], []);
      return floor === "" ? undefined : Number(floor);
    },
    ...memories(scripts, options.ttlMs),
    async membersOf(user) {
      const held = await scripts.command("zrange", (client) => client.zrange(homeKey(user), "0", "-1", "WITHSCORES"));
      const drops: string[] = [];
      let oldest = Number.POSITIVE_INFINITY;
      for (let at = 0; at < held.length; at += 2) {
        if (held[at] === FLOOR_MEMBER) continue;
        drops.push(held[at] as string);
        oldest = Math.min(oldest, Number(held[at + 1]));
      }
      return { drops, oldest };
    },
  };
}

function memories(
  { command }: Scripts,
  actorTtlMs: number,
): Pick<TimelineWriter, "rememberCreation" | "rememberActor" | "actorOf"> {
  return {
    async rememberCreation(drop, author) {
      const keys = [...(author === undefined ? [] : [homeKey(author)]), LOCAL_KEY, GLOBAL_KEY];
      const scores = await Promise.all(keys.map((key) => command("zscore", (client) => client.zscore(key, drop))));
      const score = scores.find((found) => found != null);
      if (score != null) await command("set", (client) => client.set(buriedKey(drop), score, "PX", BURIED_TTL_MS));
    },
    async rememberActor(drop, actor) {
      await command("set", (client) => client.set(actorKey(drop), actor, "PX", actorTtlMs));
    },
    async actorOf(drop) {
      return (await command("get", (client) => client.get(actorKey(drop)))) ?? undefined;
    },
  };
}
