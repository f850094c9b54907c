import { randomInt } from "node:crypto";
import { remoteCapOf, type StoredTimelinesConfig } from "../../contracts/config.js";
import type { TimelineEntry } from "../../contracts/timelines.js";
import { MAX_IDLE_MS } from "../../contracts/times.js";
import { oneLine } from "../../kernel/errors.js";
import { decodeId, FLOOR_MEMBER } from "../../kernel/ids.js";
import type { Logger } from "../../kernel/logger.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { type DataNode, dataNodes } from "../../platform/redis/servers.js";
import {
  currentOf,
  isPushed,
  PULLS_COMPLETE,
  type PulledAuthors,
  type PullRegistry,
} from "../../state/big-authors/pulled.js";
import type { Fences } from "../../state/fences/types.js";
import {
  AUTHOR_PREFIX,
  authorKey,
  authorOfKey,
  GLOBAL_KEY,
  HOME_PREFIX,
  homeKey,
  LOCAL_KEY,
  pullsKey,
  REMOTE_KEY,
  userOfHomeKey,
} from "../../state/keys.js";
import { observeAudit } from "../observe.js";
import {
  type AuditDeps,
  type AuditOptions,
  audit,
  type Contents,
  type TimelineKind,
  type TimelineName,
} from "./audit.js";
import type { PublicationDeps, StoredEntry } from "./publications.js";

type SharedName = Exclude<TimelineKind, "home">;

/** Timelines are rebuilt by these functions; see reads/index.ts. */
export interface Rebuilding {
  /** Rebuilds also the timelines of the pulled authors that are merged into it. */
  rebuildHome(user: string): Promise<void>;
  /** Rebuilds from the log; what `older` holds below the log stays. */
  rebuildShared(name: SharedName, older?: Contents): Promise<void>;
  readExpectedHome(
    user: string,
    of: { readonly floor: number; readonly count: number; readonly deadline: number },
  ): Promise<Contents>;
  readExpectedShared(name: SharedName): Promise<Contents>;
  /** Resolves to the drops of a pulled author that pages of a user leave out. */
  hiddenOf(user: string, author: string, drops: readonly string[]): Promise<ReadonlySet<string>>;
}

interface AuditorDeps extends Pick<AuditDeps, "readUnapplied" | "isKnown" | "settleMs"> {
  readonly scripts: Scripts;
  readonly fences: Pick<Fences, "retentionStart" | "tombstonedAmong">;
  readonly authorStates: PulledAuthors;
  readonly storedTimelines: StoredTimelinesConfig;
  readonly rebuilding: Rebuilding;
  readonly log: Logger;
}

export type Auditor = ReturnType<typeof createAuditor>;

/** Audits timelines, and rebuilds those that differ. */
export function createAuditor(deps: AuditorDeps) {
  const { scripts, fences, rebuilding, log, readUnapplied, isKnown, settleMs } = deps;
  const { maxEntries, ttlMs } = deps.storedTimelines;
  const { retentionStart, tombstonedAmong } = fences;
  const common = { retentionStart, tombstonedAmong, readUnapplied, isKnown, maxEntries, settleMs };
  const readOne = (key: string): Promise<Contents | undefined> => readTimeline(scripts, key, ttlMs);
  const hasShare = remoteCapOf(deps.storedTimelines) !== undefined;
  const readStored = async (timeline: TimelineName): Promise<Contents | undefined> => {
    const stored = await readOne(keyOf(timeline));
    return stored && hasShare && timeline.kind === "global" ? withRemote(scripts, stored) : stored;
  };
  const shownTo = async (user: string, key: string, part: Contents | undefined): Promise<Contents | undefined> => {
    const drops = part?.entries.map(({ drop }) => drop) ?? [];
    const hidden = await rebuilding.hiddenOf(user, authorOfKey(key) as string, drops);
    return part && { ...part, entries: part.entries.filter(({ drop }) => !hidden.has(drop)) };
  };
  const ofHomes: AuditDeps = {
    ...common,
    readStored: async (user) => {
      const registry = await currentOf(deps.authorStates);
      const keys = await mergedKeys(scripts, user, registry);
      const authors = (keys ?? []).map(async (key) => shownTo(user, key, await readOne(key)));
      const parts = await Promise.all([readOne(homeKey(user)), ...authors]);
      return keys && merged(parts);
    },
    readExpected: async (user, of) => {
      const { entries, floor } = await rebuilding.readExpectedHome(user, of);
      // If there may be more, nothing is known below the last entry.
      return { entries, floor: entries.length < of.count ? floor : (entries.at(-1)?.score ?? 0) };
    },
    rebuild: rebuilding.rebuildHome,
  };
  const ofShared = (name: SharedName): AuditDeps => ({
    ...common,
    readStored: () => readStored({ kind: name, name }),
    readExpected: () => rebuilding.readExpectedShared(name),
    rebuild: async () => rebuilding.rebuildShared(name, await readStored({ kind: name, name })),
  });
  return {
    /** Returns so many users at random whose homes are stored. */
    sample: (count: number) => sampleUsers(scripts, count),
    homes: (users: readonly string[], options?: AuditOptions) => audit(ofHomes, users, options),
    shared: (name: SharedName, options?: AuditOptions) => audit(ofShared(name), [name], options),
    /** Rebuilds a timeline; never rejects. */
    repair: async ({ kind, name }: TimelineName, foundAt: number): Promise<void> => {
      try {
        await (kind === "home" ? ofHomes : ofShared(kind)).rebuild(name);
        observeAudit.repaired([performance.now() - foundAt]);
      } catch (error) {
        observeAudit.unrepaired(1);
        log.error({ timeline: kind, error: oneLine(error) }, "a timeline that differs could not be rebuilt");
      }
    },
  };
}

const keyOf = ({ kind, name }: TimelineName): string =>
  kind === "home" ? homeKey(name) : kind === "local" ? LOCAL_KEY : GLOBAL_KEY;

/** Marks the remote entries of global. Read the entries first, since the floor of remote drops only rises. */
async function withRemote({ command }: Scripts, stored: Contents): Promise<Contents> {
  const flat = await command("zrange", (client) => client.zrange(REMOTE_KEY, "0", "-1", "WITHSCORES"));
  const scores = new Map(flat.flatMap((drop, at) => (at % 2 === 0 ? [[drop, Number(flat[at + 1])] as const] : [])));
  const marked = stored.entries.map((entry) => (scores.has(entry.drop) ? { ...entry, remote: true as const } : entry));
  return { ...stored, entries: marked, remoteFloor: scores.get(FLOOR_MEMBER) ?? 0 };
}

/** Judges by the time to live, as read-page.lua does, whether the timeline is complete, and does not renew it. */
async function readTimeline({ command }: Scripts, key: string, ttlMs: number): Promise<Contents | undefined> {
  const left = await command("pttl", (client) => client.pttl(key));
  const isIdle = left >= 0 && ttlMs - left > MAX_IDLE_MS;
  if (isIdle || left - ttlMs > ttlMs / 100) return undefined;
  const flat = await command("zrange", (client) => client.zrange(key, "0", "-1", "WITHSCORES"));
  const entries: TimelineEntry[] = [];
  let floor = -1;
  for (let at = 0; at < flat.length; at += 2) {
    const [drop, score] = [flat[at] as string, Number(flat[at + 1])];
    if (drop === FLOOR_MEMBER) floor = score;
    else entries.push({ drop, score });
  }
  return floor < 0 ? undefined : { floor, entries };
}

/**
 * Resolves to the timelines of pulled authors that a read merges into a home, or to undefined where they are not known.
 */
async function mergedKeys(
  { command }: Scripts,
  user: string,
  registry: PullRegistry,
): Promise<readonly string[] | undefined> {
  if (registry.size === 0) return [];
  const members = await command("smembers", (client) => client.smembers(pullsKey(user)));
  if (!members.includes(PULLS_COMPLETE)) return undefined;
  return members
    .filter((token) => !isPushed(registry.get(decodeId(token))?.state))
    .map((token) => AUTHOR_PREFIX + token);
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

export function createReadEntry(scripts: Scripts, authorStates: PulledAuthors): PublicationDeps["readEntry"] {
  const numberOf = (text: string | null | undefined): number | undefined => (text == null ? undefined : Number(text));
  const look = async (key: string, drop: string): Promise<StoredEntry> => {
    const [score, floor] = await scripts.command("zmscore", (client) => client.zmscore(key, drop, FLOOR_MEMBER));
    return { score: numberOf(score), floor: numberOf(floor) };
  };
  return async (timeline, drop, author) => {
    const own = await look(keyOf(timeline), drop);
    if (timeline.kind === "global") return { ...own, remoteFloor: (await look(REMOTE_KEY, drop)).floor };
    if (timeline.kind !== "home" || own.score !== undefined) return own;
    const registry = await currentOf(authorStates);
    if (isPushed(registry.get(author)?.state)) return own;
    const keys = await mergedKeys(scripts, timeline.name, registry);
    // A read makes them known first.
    if (!keys) return { score: undefined, floor: undefined };
    if (!keys.includes(authorKey(author))) return own;
    const merging = await look(authorKey(author), drop);
    const floors = [own.floor ?? -1, merging.floor ?? -1];
    return { score: merging.score, floor: Math.min(...floors) < 0 ? undefined : Math.max(...floors) };
  };
}

const KEYS_A_STEP = 500;
/** Bounds the scan of a server that holds few home timelines; one that looks for a million reads all keys. */
const stepsFor = (count: number): number => 1_000 + count;
const RANDOM_CURSOR_BELOW = 2 ** 47;

async function sampleUsers(scripts: Scripts, count: number): Promise<string[]> {
  const nodes = await dataNodes(scripts);
  const share = Math.ceil(count / nodes.length);
  const found = await Promise.all(nodes.map((node) => sampleOf(node, share)));
  return found.flat().slice(0, count);
}

async function sampleOf(node: DataNode, count: number): Promise<string[]> {
  const users = new Set<string>();
  let cursor = String(randomInt(1, RANDOM_CURSOR_BELOW));
  // The second time at the end of the keys, all of them were scanned.
  for (let step = 0, ends = 0; step < stepsFor(count) && ends < 2 && users.size < count; step++) {
    const { next, keys } = await node.scan(cursor, HOME_PREFIX, KEYS_A_STEP);
    for (const user of keys.map(userOfHomeKey)) if (user !== undefined) users.add(user);
    if (next === "0") ends++;
    cursor = next;
  }
  return [...users].slice(0, count);
}
