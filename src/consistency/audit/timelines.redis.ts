import { randomInt } from "node:crypto";
import { GLOBAL_KEY, HOME_PREFIX, homeKey, LOCAL_KEY, userOfHomeKey } from "../../contracts/keys.js";
import type { TimelineEntry } from "../../contracts/timelines.js";
import { MAX_IDLE_MS } from "../../contracts/times.js";
import { FLOOR_MEMBER } from "../../kernel/ids.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { type DataNode, dataNodes } from "../../platform/redis/servers.js";
import type { TimelineName } from "./auditor.js";
import type { Contents } from "./compare.js";
import type { PublicationDeps } from "./publications.js";

const KEYS_A_STEP = 500;
/** Bounds the scan of a server that holds few home timelines. */
const MAX_STEPS = 1_000;
const RANDOM_CURSOR_BELOW = 2 ** 47;

const keyOf = ({ kind, name }: TimelineName): string =>
  kind === "home" ? homeKey(name) : kind === "local" ? LOCAL_KEY : GLOBAL_KEY;

/** Unlike the read of a user, this one does not extend the time to live, which is `ttlMs` after a read. */
export function createReadStored(
  { command }: Scripts,
  ttlMs: number,
): (timeline: TimelineName) => Promise<Contents | undefined> {
  return async (timeline) => {
    const key = keyOf(timeline);
    const left = await command("pttl", (client) => client.pttl(key));
    if (left >= 0 && ttlMs - left > MAX_IDLE_MS) return undefined;
    const flat = await command("zrange", (client) => client.zrange(key, "0", "-1", "WITHSCORES"));
    const entries: TimelineEntry[] = [];
    let floor = -1;
    for (let at = 0; at < flat.length; at += 2) {
      const [drop, score] = [flat[at] as string, Number(flat[at + 1])];
      if (drop === FLOOR_MEMBER) floor = score;
      else entries.push({ drop, score });
    }
    return floor < 0 ? undefined : { floor, entries };
  };
}

export function createReadEntry({ command }: Scripts): PublicationDeps["readEntry"] {
  const numberOf = (text: string | null | undefined): number | undefined => (text == null ? undefined : Number(text));
  return async (timeline, drop) => {
    const key = keyOf(timeline);
    const [score, floor] = await command("zmscore", (client) => client.zmscore(key, drop, FLOOR_MEMBER));
    return { score: numberOf(score), floor: numberOf(floor) };
  };
}

export async function sampleUsers(scripts: Scripts, count: number): Promise<string[]> {
  const nodes = await dataNodes(scripts);
  const share = Math.ceil(count / nodes.length);
  const found = await Promise.all(nodes.map((node) => sampleOf(node, share)));
  return found.flat().slice(0, count);
}

async function sampleOf(node: DataNode, count: number): Promise<string[]> {
  const users = new Set<string>();
  let cursor = String(randomInt(1, RANDOM_CURSOR_BELOW));
  // The second time at the end of the keys, all of them were scanned.
  for (let step = 0, ends = 0; step < MAX_STEPS && ends < 2 && users.size < count; step++) {
    const { next, keys } = await node.scan(cursor, HOME_PREFIX, KEYS_A_STEP);
    for (const user of keys.map(userOfHomeKey)) if (user !== undefined) users.add(user);
    if (next === "0") ends++;
    cursor = next;
  }
  return [...users].slice(0, count);
}
