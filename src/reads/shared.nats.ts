import { STREAM } from "../contracts/subjects.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { CLOCK_SKEW_MS } from "../contracts/times.js";
import { DAY, sharedNow } from "../kernel/time.js";
import { askNats, managerOf } from "../platform/nats/ask.js";
import type { Snapshot } from "../state/entries/store.redis.js";
import {
  createReadSharedLog,
  earlier,
  LOOKBACKS_MS,
  type LogDeps,
  MOST_AHEAD_MS,
  OWN,
  RECEIVED,
  readLog,
  type SharedName,
  snapshotAbove,
} from "./shared-log.nats.js";
import { type ListDrops, type Walked, walkListed } from "./walk-listed.js";

export type ReadShared = (name: SharedName) => Promise<Snapshot>;

interface SharedDeps extends LogDeps {
  readonly list: ListDrops;
  /** Pages hide drops that are older, in ms since the epoch. */
  readonly retentionStart: () => number;
}

/** The newest events of a log are read beside an upstream that fills a timeline by itself: the log may just be filled. */
const NEWEST_EVENTS = 20_000;
/** In local an upstream that lists remote drops, too, is corrected by those that the log received since. */
const RECEIVED_MS = DAY;

/**
 * Reads local or global: own drops as the posts service lists them, from the newest until the timeline is full, and
 * remote drops from the log, which alone has them. Own drops of the log that are not listed are shown, too. An upstream
 * without ListDrops, or one that does not answer, leaves all to the log.
 */
export function createReadShared(deps: SharedDeps): ReadShared {
  const readSharedLog = createReadSharedLog(deps);
  return async (name) => {
    const walked = await walkUntilFull(deps);
    return walked ? readBeside(deps, name, walked) : readSharedLog(name);
  };
}

interface Own extends Walked {
  /** All own drops that were created later are listed, in ms since the epoch. */
  readonly above: number;
  readonly isFull: boolean;
}

const aboveOf = ({ since }: Walked): number => (since === 0 ? 0 : since + CLOCK_SKEW_MS + MOST_AHEAD_MS);

async function walkUntilFull(deps: SharedDeps): Promise<Own | undefined> {
  let isFull = false;
  const isEnough = async (walked: Walked): Promise<boolean> => {
    const own = shownOf(walked);
    const { entries } = await snapshotAbove(aboveOf(walked), { name: "local", own, remote: new Map() }, deps);
    isFull = entries.length >= deps.maxEntries;
    return isFull;
  };
  try {
    const walked = await walkListed(deps.list, { isEnough, oldest: deps.retentionStart() });
    return walked && { ...walked, above: aboveOf(walked), isFull };
  } catch {
    // The log is what is left while the posts service does not answer.
    return undefined;
  }
}

const logInfo = ({ connection }: Pick<LogDeps, "connection">) =>
  askNats("the state of the log", async () => (await managerOf(connection)).streams.info(STREAM.drops));

const shownOf = ({ drops }: Walked): Map<string, TimelineEntry> =>
  new Map([...drops].flatMap(([drop, entry]) => (entry ? [[drop, entry] as const] : [])));

async function readBeside(deps: SharedDeps, name: SharedName, walked: Own): Promise<Snapshot> {
  const { connection, maxEntries } = deps;
  const now = sharedNow();
  const { state } = await logInfo(deps);
  for (const lookback of LOOKBACKS_MS) {
    const from = now - lookback;
    const logged = await readLog(connection, [
      { subject: OWN, ...(walked.isFull ? { after: Math.max(0, state.last_seq - NEWEST_EVENTS) } : { from }) },
      { subject: RECEIVED, from: name === "global" ? from : Math.max(from, now - RECEIVED_MS) },
    ]);
    const isLast = lookback === LOOKBACKS_MS.at(-1) || from + MOST_AHEAD_MS <= walked.above;
    const own = ownOf(logged, walked);
    const snapshot = await snapshotAbove(
      isLast ? walked.above : from + MOST_AHEAD_MS,
      { name, own, remote: logged.remote },
      deps,
    );
    if (isLast || snapshot.entries.length >= maxEntries) return snapshot;
  }
  throw new Error("unreachable: the last round returns");
}

/** An own drop that is listed as deleted or hidden is not shown. One that was only received is not one of this server's own. */
function ownOf({ own, received }: Awaited<ReturnType<typeof readLog>>, walked: Own): Map<string, TimelineEntry> {
  const all = new Map([...own].filter(([drop]) => !walked.drops.has(drop)));
  for (const [drop, entry] of shownOf(walked))
    if (own.has(drop) || !received.has(drop)) all.set(drop, earlier(entry, own.get(drop)));
  return all;
}
