import { randomInt } from "node:crypto";
import { bylineOf, type TimelineEntry } from "../../contracts/timelines.js";
import { MAX_IDLE_MS } from "../../contracts/times.js";
import { decodeId } from "../../kernel/ids.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { type DataNode, dataNodes } from "../../platform/redis/servers.js";
import { currentOf, isPushed, PULLS_COMPLETE, type PulledAuthors, type PullRegistry } from "../big-authors/pulled.js";
import {
  authorKey,
  bylinesKey,
  FLOOR_MEMBER,
  GLOBAL_KEY,
  homeKey,
  LOCAL_KEY,
  listKey,
  pullsKey,
  READERS_PATTERN,
  REMOTE_KEY,
  readerOfKey,
} from "../keys.js";
import { createFollowsStore } from "./follows.redis.js";
import { entriesIn } from "./scored.js";

/** A stored timeline. The name of a home is its user. */
interface Timeline {
  readonly kind: "home" | "local" | "global";
  readonly name: string;
}

export interface Contents {
  /** The timeline is complete down to this time, in ms since the epoch; 0 is the start. */
  readonly floor: number;
  readonly entries: readonly TimelineEntry[];
  /** Remote drops created up to this time, ms since the epoch, are left out: the share is used up. */
  readonly remoteFloor?: number | undefined;
}

export interface StoredEntry {
  readonly floor: number | undefined;
  readonly score: number | undefined;
  /** Global leaves out remote drops created up to this time, ms since the epoch: the share is used up. */
  readonly remoteFloor?: number | undefined;
}

export type ReadEntry = (timeline: Timeline, drop: string, author: string) => Promise<StoredEntry>;

/** Resolves to those drops of a big author that pages of the user leave out. */
type HiddenOf = (user: string, author: string, drops: readonly string[]) => Promise<ReadonlySet<string>>;

interface AuditReadsDeps {
  readonly scripts: Scripts;
  readonly authorStates: PulledAuthors;
  readonly ttlMs: number;
  /** True if remote drops have only a share of global. */
  readonly hasShare: boolean;
  /** True: homes leave out replies to those whom their users do not follow. */
  readonly judgesReplies: boolean;
}

/** Reads whole timelines as pages show them, without renewing them. */
export function createAuditReads({ scripts, authorStates, ttlMs, hasShare, judgesReplies }: AuditReadsDeps) {
  const { isRight } = createFollowsStore(scripts, judgesReplies);
  const readOne = (key: string): Promise<Contents | undefined> => readTimeline(scripts, key, ttlMs);
  const shownTo = async (user: string, author: string, hiddenOf: HiddenOf): Promise<Contents | undefined> => {
    const contents = await readOne(authorKey(author));
    const hidden = await hiddenOf(user, author, contents?.entries.map(({ drop }) => drop) ?? []);
    return contents && { ...contents, entries: contents.entries.filter(({ drop }) => !hidden.has(drop)) };
  };
  return {
    /** Resolves to undefined if the home, or a timeline that is merged into it, is incomplete. */
    async home(user: string, hiddenOf: HiddenOf): Promise<Contents | undefined> {
      const authors = await mergedAuthors(scripts, user, await currentOf(authorStates));
      const parts = (authors ?? []).map((author) => shownTo(user, author, hiddenOf));
      const all = await Promise.all([readOne(homeKey(user)), ...parts]);
      return authors && (await isRight(homeKey(user))) ? merged(all) : undefined;
    },
    /**
     * Resolves to what a list has of these members: undefined if it, or a timeline that is merged into it, is incomplete.
     */
    async list(list: string, members: readonly string[]): Promise<Contents | undefined> {
      const registry = await currentOf(authorStates);
      const authors = members.filter((member) => !isPushed(registry.get(member)?.state));
      const read = readOne(listKey(list)).then((stored) => stored && ofMembers(scripts, list, { stored, members }));
      return merged(await Promise.all([read, ...authors.map((author) => readOne(authorKey(author)))]));
    },
    async shared(name: "local" | "global"): Promise<Contents | undefined> {
      const stored = await readOne(keyOf({ kind: name, name }));
      return stored && hasShare && name === "global" ? withRemote(scripts, stored) : stored;
    },
    /** Resolves to at most `count` users and readers of lists at random, whose timelines are stored. */
    sample: (count: number): Promise<string[]> => sampleReaders(scripts, count),
  };
}

const keyOf = ({ kind, name }: Timeline): string =>
  kind === "home" ? homeKey(name) : kind === "local" ? LOCAL_KEY : GLOBAL_KEY;

/** Leaves out the drops of those who are no members any more. Without the bylines the list is incomplete. */
async function ofMembers(
  { command }: Scripts,
  list: string,
  { stored, members }: { readonly stored: Contents; readonly members: readonly string[] },
): Promise<Contents | undefined> {
  const drops = stored.entries.map(({ drop }) => drop);
  if (drops.length === 0) return stored;
  const texts = await command("hmget", (client) => client.hmget(bylinesKey(listKey(list)), ...drops));
  if (texts.includes(null)) return undefined;
  const all = new Set(members);
  return { ...stored, entries: stored.entries.filter((_, index) => all.has(bylineOf(texts[index] as string).author)) };
}

/** Marks the remote entries of global. Read the entries first, since the floor of remote drops only rises. */
async function withRemote({ command }: Scripts, stored: Contents): Promise<Contents> {
  const flat = await command("zrange", (client) => client.zrange(REMOTE_KEY, "0", "-1", "WITHSCORES"));
  const scores = new Map(entriesIn(flat).map(({ drop, score }) => [drop, score]));
  const marked = stored.entries.map((entry) => (scores.has(entry.drop) ? { ...entry, remote: true as const } : entry));
  return { ...stored, entries: marked, remoteFloor: scores.get(FLOOR_MEMBER) ?? 0 };
}

/** Reads a timeline if it is complete, which its time to live tells as in read-page.lua. Does not renew it. */
async function readTimeline({ command }: Scripts, key: string, ttlMs: number): Promise<Contents | undefined> {
  const msLeft = await command("pttl", (client) => client.pttl(key));
  const isIdle = msLeft >= 0 && ttlMs - msLeft > MAX_IDLE_MS;
  if (isIdle || msLeft - ttlMs > ttlMs / 100) return undefined;
  const flat = await command("zrange", (client) => client.zrange(key, "0", "-1", "WITHSCORES"));
  const all = entriesIn(flat);
  const floor = all.find(({ drop }) => drop === FLOOR_MEMBER)?.score ?? -1;
  return floor < 0 ? undefined : { floor, entries: all.filter(({ drop }) => drop !== FLOOR_MEMBER) };
}

/** Resolves to the big authors whose timelines a read merges into a home, or to undefined if they are not known. */
async function mergedAuthors(
  { command }: Scripts,
  user: string,
  registry: PullRegistry,
): Promise<readonly string[] | undefined> {
  if (registry.size === 0) return [];
  const members = await command("smembers", (client) => client.smembers(pullsKey(user)));
  if (!members.includes(PULLS_COMPLETE)) return undefined;
  return members.filter((token) => !isPushed(registry.get(decodeId(token))?.state)).map(decodeId);
}

function merged(parts: readonly (Contents | undefined)[]): Contents | undefined {
  const whole = parts.filter((part) => part !== undefined);
  if (whole.length < parts.length) return undefined;
  const scores = new Map<string, number>();
  for (const { entries } of whole)
    for (const { drop, score } of entries) scores.set(drop, Math.min(score, scores.get(drop) ?? score));
  const entries = [...scores].map(([drop, score]) => ({ drop, score }));
  return { floor: Math.max(...whole.map(({ floor }) => floor)), entries };
}

export function createReadEntry(scripts: Scripts, authorStates: PulledAuthors, judgesReplies: boolean): ReadEntry {
  const { isRight } = createFollowsStore(scripts, judgesReplies);
  const numberOf = (text: string | null | undefined): number | undefined => (text == null ? undefined : Number(text));
  const look = async (key: string, drop: string): Promise<StoredEntry> => {
    const [score, floor] = await scripts.command("zmscore", (client) => client.zmscore(key, drop, FLOOR_MEMBER));
    return { score: numberOf(score), floor: numberOf(floor) };
  };
  return async (timeline, drop, author) => {
    const entry = await look(keyOf(timeline), drop);
    const isWhole = timeline.kind !== "home" || (await isRight(keyOf(timeline)));
    const stored = isWhole ? entry : { ...entry, floor: undefined };
    if (timeline.kind === "global") return { ...stored, remoteFloor: (await look(REMOTE_KEY, drop)).floor };
    if (timeline.kind !== "home" || stored.score !== undefined) return stored;
    const registry = await currentOf(authorStates);
    if (isPushed(registry.get(author)?.state)) return stored;
    const authors = await mergedAuthors(scripts, timeline.name, registry);
    // A read fills the set first.
    if (!authors) return { score: undefined, floor: undefined };
    if (!authors.includes(author)) return stored;
    const merging = await look(authorKey(author), drop);
    const floors = [stored.floor ?? -1, merging.floor ?? -1];
    return { score: merging.score, floor: Math.min(...floors) < 0 ? undefined : Math.max(...floors) };
  };
}

const KEYS_A_STEP = 500;
/** Maximum number of steps, for a server with few home timelines. A sample of a million reads all keys. */
const stepsFor = (count: number): number => 1_000 + count;
const RANDOM_CURSOR_BELOW = 2 ** 47;

async function sampleReaders(scripts: Scripts, count: number): Promise<string[]> {
  const nodes = await dataNodes(scripts);
  const share = Math.ceil(count / nodes.length);
  const samples = await Promise.all(nodes.map((node) => sampleOf(node, share)));
  return samples.flat().slice(0, count);
}

async function sampleOf(node: DataNode, count: number): Promise<string[]> {
  const readers = new Set<string>();
  let cursor = String(randomInt(1, RANDOM_CURSOR_BELOW));
  // At the second end of the keys, all of them were scanned.
  for (let step = 0, ends = 0; step < stepsFor(count) && ends < 2 && readers.size < count; step++) {
    const { next, keys } = await node.scan(cursor, READERS_PATTERN, KEYS_A_STEP);
    for (const reader of keys.map(readerOfKey)) if (reader !== undefined) readers.add(reader);
    if (next === "0") ends++;
    cursor = next;
  }
  return [...readers].slice(0, count);
}
