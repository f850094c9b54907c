import type { NatsConnection } from "nats";
import { parseStored, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import { STREAM } from "../contracts/subjects.js";
import { compareEntries, parentOf, type TimelineEntry } from "../contracts/timelines.js";
import { CLOCK_SKEW_MS, MAX_AHEAD_MS } from "../contracts/times.js";
import { DAY, HOUR, MINUTE, sharedNow } from "../kernel/time.js";
import { askNats, managerOf } from "../platform/nats/ask.js";
import { type LogRange, logEntries } from "../platform/nats/read-log.js";
import type { Erased, Fences, Snapshot } from "../state/index.js";
import { aboveFloor, type Entries } from "./pages.js";
import { snapshotOf } from "./rebuild.js";
import type { ListedDrops, ReadListedDrops } from "./sources.grpc.js";

export type SharedName = "local" | "global";

/**
 * Snapshot made from the log. Its floor is the time down to which the log was read, even if the log has lost drops: no
 * other source has them, and a higher floor would refuse late drops.
 */
export interface LogSnapshot extends Snapshot {
  /** The log may have lost drops created up to this time, ms; 0: it has lost none. */
  readonly wholeSince: number;
}

export type ReadSharedLog = (name: SharedName) => Promise<LogSnapshot>;

/** Ranges in which the log is read, one after the other until there are enough drops. */
export const LOOKBACKS_MS = [HOUR, 6 * HOUR, DAY, 8 * DAY];
/** Ranges for an audit, which compares only the range it has read and so may read less of a busy log. */
export const AUDIT_LOOKBACKS_MS: readonly number[] = [10 * MINUTE, ...LOOKBACKS_MS];

/**
 * Maximum lead of a stored drop's time, ms. A read of events from a time on finds every drop created later than that
 * time and this lead.
 */
export const MOST_AHEAD_MS = MAX_AHEAD_MS + CLOCK_SKEW_MS;

export interface LogDeps {
  readonly connection: NatsConnection;
  readonly tombstonedAmong: Fences["tombstonedAmong"];
  readonly erased: Pick<Erased, "among">;
  readonly maxEntries: number;
  /** Maximum number of remote drops in global. Default: no maximum. */
  readonly remoteCap?: number | undefined;
  /** True: local and global leave out replies to others. */
  readonly judgesReplies: boolean;
  readonly lookbacksMs?: readonly number[];
  /**
   * Returns this server's own drops as the upstream lists them; the log alone has remote ones. Default: the log has
   * both.
   */
  readonly readListed?: ReadListedDrops;
}

export function createReadSharedLog(deps: LogDeps): ReadSharedLog {
  const { lookbacksMs = LOOKBACKS_MS } = deps;
  return async (name) => {
    for (const lookback of lookbacksMs) {
      const snapshot = await readSince(deps, name, sharedNow() - lookback);
      if (snapshot.entries.length >= deps.maxEntries || lookback === lookbacksMs.at(-1)) return snapshot;
    }
    throw new Error("unreachable: the last round returns");
  };
}

async function readSince(deps: LogDeps, name: SharedName, from: number): Promise<LogSnapshot> {
  const { connection } = deps;
  const info = async () => (await managerOf(connection)).streams.info(STREAM.drops);
  const { state } = await askNats("the state of the log", info);
  const firstAt = state.messages === 0 ? undefined : Date.parse(String(state.first_ts));
  const isWholeLog = state.first_seq <= 1 && (firstAt === undefined || firstAt >= from);
  const isListed = from + MOST_AHEAD_MS;
  const listed = await deps.readListed?.(from - CLOCK_SKEW_MS);
  const subjects = listed || name === "global" ? [OWN, RECEIVED] : [OWN];
  const logged = await readLog(
    connection,
    subjects.map((subject) => ({ subject, from })),
  );
  const ownDrops = listed ? ownListed(logged, listed, isListed) : logged.ownDrops;
  const snapshot = await snapshotAbove(isWholeLog ? 0 : isListed, { name, ownDrops, remote: logged.remote }, deps);
  const lostUntil = isWholeLog ? 0 : Math.max(from, firstAt ?? sharedNow()) + MOST_AHEAD_MS;
  const known = listed ? (name === "local" ? isListed : Math.max(isListed, lostUntil)) : lostUntil;
  return { ...snapshot, wholeSince: Math.max(snapshot.floor, known) };
}

/** Takes the newest drops of local or global. `floor` is the time down to which all of them are known. */
export async function snapshotAbove(
  floor: number,
  { name, ownDrops, remote }: Pick<Logged, "ownDrops" | "remote"> & { readonly name: SharedName },
  deps: LogDeps,
): Promise<Snapshot> {
  const { maxEntries, remoteCap, judgesReplies } = deps;
  const all = new Map(name === "global" ? remote : []);
  for (const [drop, entry] of ownDrops) all.set(drop, earlier(entry, all.get(drop)));
  const known = [...all.values()].sort((a, b) => compareEntries(b, a));
  const entries = judgesReplies ? known.filter(({ by }) => by?.parent === undefined) : known;
  const share = createShare(name === "global" ? remoteCap : undefined);
  const shown = await newestAlive(aboveFloor(entries, floor), { count: maxEntries + 1, share }, deps);
  return { ...snapshotOf(shown, maxEntries, floor), remoteFloor: share.floor() };
}

export const OWN = SUBJECT_OF.drop_created;
export const RECEIVED = SUBJECT_OF.ap_drop_received;

interface Logged {
  readonly ownDrops: Map<string, TimelineEntry>;
  readonly remote: Map<string, TimelineEntry>;
  /** Drops that were received, of any visibility. */
  readonly received: Set<string>;
}

/** Reads public drops, without reposts. Of two times of a drop the smaller one counts. */
export async function readLog(
  connection: NatsConnection,
  ranges: readonly Pick<LogRange, "subject" | "from" | "after">[],
): Promise<Logged> {
  const logged: Logged = { ownDrops: new Map(), remote: new Map(), received: new Set() };
  for (const range of ranges) {
    for await (const entry of logEntries(connection, { stream: STREAM.drops, ...range })) {
      const event = eventOf(entry.subject, entry.body, entry.time);
      if (event?.name !== "drop_created" && event?.name !== "ap_drop_received") continue;
      const { drop_id: drop, created_at: score, user_id: author = "", visibility } = event.payload;
      if (event.name === "ap_drop_received") logged.received.add(drop);
      const drops = event.name === "drop_created" ? logged.ownDrops : logged.remote;
      const isRepost = event.name === "drop_created" && event.payload.repost_of !== undefined;
      const parent = parentOf(event.payload, visibility === "direct");
      const read = {
        drop,
        score,
        by: { author, parent },
        ...(drops === logged.remote ? { remote: true as const } : {}),
      };
      if (visibility === "public" && !isRepost) drops.set(drop, earlier(read, drops.get(drop)));
    }
  }
  return logged;
}

export const earlier = (entry: TimelineEntry, other: TimelineEntry | undefined): TimelineEntry =>
  other && other.score < entry.score ? other : entry;

/**
 * Merges the drops of the log with those of the upstream, which lists every drop above a time. A remote drop that the
 * upstream lists too is not this server's own.
 */
function ownListed({ ownDrops, received }: Logged, listed: ListedDrops, above: number): Map<string, TimelineEntry> {
  const kept = [...ownDrops].filter(([drop, { score }]) => score <= above && !(listed.has(drop) && !listed.get(drop)));
  const shown = [...listed].flatMap(([drop, entry]): [string, TimelineEntry][] => {
    if (entry === undefined || entry.score <= above || (received.has(drop) && !ownDrops.has(drop))) return [];
    return [[drop, earlier(entry, ownDrops.get(drop))]];
  });
  return new Map([...kept, ...shown]);
}

type Share = ReturnType<typeof createShare>;

/** Counts entries, which come newest first, and takes at most `cap` remote ones. */
function createShare(cap: number | undefined) {
  let [taken, floor] = [0, 0];
  return {
    takes({ remote, score }: TimelineEntry): boolean {
      if (cap === undefined || !remote || ++taken <= cap) return true;
      floor = Math.max(floor, score, 1);
      return false;
    },
    /** Returns the time of the newest entry that was left out, ms; 0: none was; undefined: there is no cap. */
    floor: (): number | undefined => (cap === undefined ? undefined : floor),
  };
}

const DROPS_A_CHECK = 1_000;
const authorOf = ({ by }: TimelineEntry): string => by?.author ?? "";
const usersOf = ({ by }: TimelineEntry): string[] => [by?.author, by?.parent].filter((user) => user !== undefined);

/** Takes the newest entries. Deleted drops, drops of erased users and remote drops above the share do not count. */
async function newestAlive(
  entries: Entries,
  { count, share }: { readonly count: number; readonly share: Share },
  { tombstonedAmong, erased }: Pick<LogDeps, "tombstonedAmong" | "erased">,
): Promise<Entries> {
  const alive: TimelineEntry[] = [];
  for (let offset = 0; offset < entries.length && alive.length < count; offset += DROPS_A_CHECK) {
    const batch = entries.slice(offset, offset + DROPS_A_CHECK);
    const [tombstoned, gone] = await Promise.all([
      tombstonedAmong(batch.map(({ drop }) => drop)),
      erased.among([...new Set(batch.flatMap(usersOf).filter((user) => user !== ""))]),
    ]);
    // Nobody knows any more whom a reply to an erased user answers.
    const named = (entry: TimelineEntry): TimelineEntry =>
      gone.has(entry.by?.parent ?? "") ? { ...entry, by: { author: authorOf(entry) } } : entry;
    const isAlive = (entry: TimelineEntry): boolean => !tombstoned.has(entry.drop) && !gone.has(authorOf(entry));
    alive.push(...batch.filter((entry) => isAlive(entry) && share.takes(entry)).map(named));
  }
  return alive;
}

function eventOf(subject: string, body: Uint8Array, time: number): TimelineEvent | undefined {
  try {
    return parseStored(subject, body, time);
  } catch {
    // The fan-out has dead-lettered this event.
    return undefined;
  }
}

/** Keeps entries of `older` from the time in which the log may have lost drops. */
export function withOlder(
  logged: LogSnapshot,
  older: Snapshot,
  { maxEntries, remoteCap }: Pick<LogDeps, "maxEntries" | "remoteCap">,
): Snapshot {
  const { entries, wholeSince } = logged;
  if (older.floor >= wholeSince) return logged;
  const known = new Set(entries.map(({ drop }) => drop));
  const remoteFloor = Math.max(logged.remoteFloor ?? 0, older.remoteFloor ?? 0);
  const kept = older.entries.filter(
    ({ drop, score, remote }) => score <= wholeSince && !known.has(drop) && !(remote && score <= remoteFloor),
  );
  const all = aboveFloor([...entries, ...kept], older.floor).toSorted((a, b) => compareEntries(b, a));
  if (logged.remoteFloor === undefined) return snapshotOf(all, maxEntries, older.floor);
  const share = createShare(remoteCap);
  const shown = all.filter(share.takes);
  return { ...snapshotOf(shown, maxEntries, older.floor), remoteFloor: Math.max(remoteFloor, share.floor() ?? 0) };
}
