import { STREAM } from "../contracts/subjects.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { CLOCK_SKEW_MS } from "../contracts/times.js";
import { DAY, sharedNow } from "../kernel/time.js";
import { askNats, managerOf } from "../platform/nats/ask.js";
import type { Snapshot } from "../state/index.js";
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
  /** Returns the time before which pages hide drops, in ms since the epoch. */
  readonly retentionStart: () => number;
}

/**
 * Number of newest events that are read, even if the upstream alone fills the timeline: the log may have just been
 * filled.
 */
const NEWEST_EVENTS = 20_000;
/** Range of received drops that are read for local, to leave out remote drops that the upstream lists as its own. */
const RECEIVED_MS = DAY;

/**
 * Reads local or global: own drops as the posts service lists them, from the newest until the timeline is full, and
 * remote drops from the log, which alone has them. Own drops that are in the log but not listed are shown, too. If the
 * upstream has no ListDrops or does not answer, the log is the only source.
 */
export function createReadShared(deps: SharedDeps): ReadShared {
  const readSharedLog = createReadSharedLog(deps);
  return async (name) => {
    const walked = await walkUntilFull(deps);
    return walked ? readBeside(deps, name, walked) : readSharedLog(name);
  };
}

interface Own extends Walked {
  /** All own drops created after this time are listed, in ms since the epoch. */
  readonly above: number;
  readonly isFull: boolean;
}

const aboveOf = ({ since }: Walked): number => (since === 0 ? 0 : since + CLOCK_SKEW_MS + MOST_AHEAD_MS);

async function walkUntilFull(deps: SharedDeps): Promise<Own | undefined> {
  let isFull = false;
  const isEnough = async (walked: Walked): Promise<boolean> => {
    const ownDrops = shownOf(walked);
    const { entries } = await snapshotAbove(aboveOf(walked), { name: "local", ownDrops, remote: new Map() }, deps);
    isFull = entries.length >= deps.maxEntries;
    return isFull;
  };
  try {
    const walked = await walkListed(deps.list, { isEnough, oldest: deps.retentionStart() });
    return walked && { ...walked, above: aboveOf(walked), isFull };
  } catch {
    // If the posts service does not answer, only the log is read.
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
    const ownDrops = ownOf(logged, walked);
    const snapshot = await snapshotAbove(
      isLast ? walked.above : from + MOST_AHEAD_MS,
      { name, ownDrops, remote: logged.remote },
      deps,
    );
    if (isLast || snapshot.entries.length >= maxEntries) return snapshot;
  }
  throw new Error("unreachable: the last round returns");
}

/**
 * Leaves out own drops that are listed as deleted or hidden, and listed drops that were only received: those are
 * remote.
 */
function ownOf({ ownDrops, received }: Awaited<ReturnType<typeof readLog>>, walked: Own): Map<string, TimelineEntry> {
  const all = new Map([...ownDrops].filter(([drop]) => !walked.drops.has(drop)));
  for (const [drop, entry] of shownOf(walked))
    if (ownDrops.has(drop) || !received.has(drop)) all.set(drop, earlier(entry, ownDrops.get(drop)));
  return all;
}
