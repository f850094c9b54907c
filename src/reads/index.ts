import type { NatsConnection } from "nats";
import { remoteCapOf, type StoredTimelinesConfig } from "../contracts/config.js";
import { listOfReader } from "../contracts/lists.js";
import { listPositionOf } from "../contracts/positions.js";
import type { Affected, Byline } from "../contracts/timelines.js";
import { TimelineServiceService } from "../gen/avion/timeline.js";
import { createBoundedQueue, mapLimited } from "../kernel/concurrency.js";
import type { Logger } from "../kernel/logger.js";
import { createOldestFirst } from "../kernel/oldest-first.js";
import { MINUTE, SECOND } from "../kernel/time.js";
import { encodedResponses, lazilyTraced, type Service, unary } from "../platform/grpc/unary.js";
import type { Publish } from "../platform/nats/publish.js";
import {
  authorOf,
  authorTimelineOf,
  createListReaders,
  Follows,
  GLOBAL,
  type Homes,
  homeOf,
  isPushed,
  type ListReaders,
  LOCAL,
  listTimelineOf,
  type ReadCache,
  type Snapshot,
  type State,
  type TimelineStore,
} from "../state/index.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";
import { createIsAffected } from "./affected.js";
import type { TimelineConfig } from "./config.js";
import { rebuildUnlessErased, sourcesWithoutErased } from "./erased.js";
import { type GetTimeline, getHomeTimeline, getSharedTimeline } from "./get-timeline.js";
import { authorSnapshot, type Expected, fillPulls, type HomeDeps, homeSnapshot, readExpectedHome } from "./home.js";
import { getListTimeline, listSnapshot, readExpectedList } from "./list.js";
import { observeTimeline } from "./observe.js";
import { type AskedNewer, createPositionMethods, withNewer } from "./positions.js";
import { createPositionStore } from "./positions.nats.js";
import { createRebuild, type Rebuild } from "./rebuild.js";
import { createReadShared } from "./shared.nats.js";
import {
  AUDIT_LOOKBACKS_MS,
  createReadSharedLog,
  type LogDeps,
  type SharedName,
  withOlder,
} from "./shared-log.nats.js";
import { createListDrops, createReadListedDrops, createSources, FOLLOWING_A_PAGE } from "./sources.grpc.js";

export type { Homes };

interface TimelinesDeps {
  readonly state: State;
  readonly nats: NatsConnection;
  readonly upstreams: Upstreams;
  readonly readLimits: ReadLimits;
  readonly config: { readonly storedTimelines: StoredTimelinesConfig; readonly timeline: TimelineConfig };
  readonly readCache?: ReadCache | undefined;
  readonly log: Logger;
}

interface Serving {
  readonly publish: Publish;
  readonly exportsTraces: boolean;
  /** Returns true while Redis may lack writes that it had confirmed. */
  readonly maybeLost: () => boolean;
  readonly affected: () => readonly Affected[];
}

export type ReadLimits = ReturnType<typeof createReadLimits>;

/** Bounds on rebuilds and on reads from the upstreams, for a whole process. */
export interface ReadBounds {
  /** Maximum number of rebuilds and upstream pages at a time: enough to use all upstream calls of the process. */
  readonly rebuildsAtOnce: number;
  /** Maximum number of rebuilds and upstream pages that wait. A page beyond it is degraded at once. */
  readonly rebuildsWaiting: number;
  /** Maximum time of a read, ms, even if the caller's deadline is later. */
  readonly deadlineMaxMs: number;
}

const READ_BOUNDS: ReadBounds = { rebuildsAtOnce: 4, rebuildsWaiting: 1_000, deadlineMaxMs: MINUTE };

/** Limits rebuilds and reads below the floor, and their upstream calls. A process has one. */
export const createReadLimits = (
  { upstreamConcurrency }: Pick<TimelineConfig, "upstreamConcurrency">,
  bounds: Partial<ReadBounds> = {},
) => {
  const { rebuildsAtOnce, rebuildsWaiting, deadlineMaxMs } = { ...READ_BOUNDS, ...bounds };
  return {
    rebuildQueue: createBoundedQueue({ atOnce: rebuildsAtOnce, waiting: rebuildsWaiting }),
    calls: createOldestFirst(upstreamConcurrency),
    deadlineMaxMs,
  };
};

/** Time limit for reading whom one user follows. */
const FILL_MS = 10 * SECOND;

export type Timelines = ReturnType<typeof createTimelines>;

/** Composes the reads, rebuilds and trimming of timelines. */
export function createTimelines(deps: TimelinesDeps) {
  const { state, config, upstreams, log } = deps;
  const { fences, erased, authorStates } = state;
  const { maxEntries, homeReplies } = config.storedTimelines;
  const judgesReplies = homeReplies === "followed";
  const { rebuildQueue, calls, deadlineMaxMs } = deps.readLimits;
  const { hidden, store, pulls } = state.openReads(deps.upstreams, {
    readCache: deps.readCache,
    repostWindow: config.timeline.homeRepostWindow,
  });
  const openSources = sourcesWithoutErased(createSources(deps.upstreams, calls), erased);
  const home = { openSources, pulls, hidden, rebuildQueue, maxEntries, judgesReplies, authorStates, upstreams };
  const shared = { maxEntries, remoteCap: remoteCapOf(config.storedTimelines), judgesReplies };
  const { readShared, readListedLog, readAuditedLog } = openSharedReads(deps, shared);
  const readers = createListReaders(upstreams.listReader);
  const lists = { ...home, store, readers };
  const writes = { store, fences, rebuildQueue, fillHidden: hidden.fill };
  const rebuildAny = createRebuild({ ...writes, log, observe: observeTimeline.rebuilt });
  const rebuild = rebuildUnlessErased(rebuildAny, { store, erased, authorStates });
  const rebuilds = createRebuilds({ ...lists, rebuild });
  return {
    /** Serves the reads over gRPC. */
    service: ({ maybeLost, affected, exportsTraces, publish }: Serving): Service => {
      const isAffected = createIsAffected(affected, (user, token, deadline) =>
        deps.upstreams.following({ user, token, size: FOLLOWING_A_PAGE, deadline }),
      );
      const noted = { maybeLost, affected, isAffected, observe: observeTimeline.read };
      const reads = { ...lists, ...noted, fences, readShared, rebuild, deadlineMaxMs, log };
      const implementation = createMethods(reads, { ...deps, exportsTraces, publish });
      return { name: "avion.TimelineService", definition: encodedResponses(TimelineServiceService), implementation };
    },
    ...rebuilds,
    /** Resolves once it is known which pulled authors the user follows. */
    fillPulls: (user: string): Promise<void> => fillPulls(home, user, Date.now() + FILL_MS),
    pulledAuthors: async (): Promise<string[]> =>
      [...(await authorStates.refresh())].flatMap(([author, { state }]) => (isPushed(state) ? [] : author)),
    /**
     * Rebuilds local or global from the upstreams and the log. Drops that both lack are removed, except those of
     * `older`.
     */
    rebuildShared: (name: SharedName, older?: Snapshot): Promise<void> => {
      const takeSnapshot = async (): Promise<Snapshot> => {
        const snapshot = await readListedLog(name);
        return older ? withOlder(snapshot, older, shared) : snapshot;
      };
      return rebuild(name === "local" ? LOCAL : GLOBAL, takeSnapshot, { afresh: true });
    },
    /** Reads the newest `count` drops of a home, or of a list by its reader, created after `floor` (ms) from the upstreams. */
    readExpectedHome: (reader: string, expected: Expected) => {
      const list = listOfReader(reader);
      return list === undefined ? readExpectedHome(home, reader, expected) : readExpectedList(lists, list, expected);
    },
    /** Reads local or global from the upstreams and the log, as far back as an audit compares. */
    readExpectedShared: async (name: SharedName): Promise<Snapshot> => {
      const { wholeSince, ...snapshot } = await readAuditedLog(name);
      return { ...snapshot, floor: wholeSince };
    },
    hiddenOf: createHiddenOf({ hidden, store, pulls }, judgesReplies),
    /** Resolves to the reason why the home of a user who follows the author leaves out a drop with this byline. */
    hides: async (user: string, by: Byline): Promise<"relation" | "reply" | undefined> => {
      if ((await (await hidden.known(user)).among([by])).hides(by)) return "relation";
      if (!judgesReplies || by.parent === undefined) return undefined;
      const following = await openSources(user).following(user, Date.now() + FILL_MS);
      return new Follows(user, following).shows(by) ? undefined : "reply";
    },
    listHomes: state.listHomes,
    startTrimming: () => state.startTrimming(),
  };
}

interface RebuildsDeps extends HomeDeps {
  readonly store: TimelineStore;
  readonly readers: ListReaders;
  readonly authorStates: State["authorStates"];
  readonly rebuild: Rebuild;
}

function createRebuilds(deps: RebuildsDeps) {
  const { store, readers, authorStates, rebuild } = deps;
  const rebuildAuthor = (author: string): Promise<void> =>
    rebuild(authorTimelineOf(author), authorSnapshot(deps, author), { afresh: true });
  const membersOf = async (list: string): Promise<readonly string[]> => [
    ...(await readers.readNow({ owner: "", list }, FILL_MS)).members,
  ];
  const mergedOf = async (user: string): Promise<readonly string[]> =>
    (await store.mergedKeysOf(homeOf(user))).map((key) => authorOf(key) as string);
  return {
    /** Rebuilds the timeline of a pulled author, complete or not. */
    rebuildAuthor,
    /** Resolves to the members of a list, whoever owns it. @throws AppError `notfound` if there is no such list */
    membersOf,
    /**
     * Rebuilds a home timeline, or a list by the name of its reader, and those merged into it, complete or not. They stay
     * readable meanwhile.
     */
    async rebuildHome(reader: string, { alone = false } = {}): Promise<void> {
      const list = listOfReader(reader);
      const key = list === undefined ? homeOf(reader) : listTimelineOf(list);
      const afresh = { afresh: true };
      const snapshot =
        list === undefined ? homeSnapshot(deps, reader, afresh) : listSnapshot(deps, { owner: "", list });
      await rebuild(key, snapshot, afresh);
      if (alone) return;
      const registry = await authorStates.refresh();
      const merged = list === undefined ? await mergedOf(reader) : await membersOf(list);
      const whole = merged.filter((author) => !isPushed(registry.get(author)?.state));
      await mapLimited(whole, 1, rebuildAuthor);
    },
  };
}

type Methods = TimelinesDeps & Pick<Serving, "exportsTraces" | "publish">;

/** The methods answer encoded messages. */
function createMethods(reads: Parameters<typeof getListTimeline>[0], deps: Methods) {
  const traced = <Asked>(name: string, read: GetTimeline<Asked>) =>
    lazilyTraced({ name, exportsTraces: deps.exportsTraces, log: deps.log }, read);
  const { counting, methods } = openPositions(reads, deps);
  return {
    getHomeTimeline: traced(
      "GetHomeTimeline",
      counting(() => "home", getHomeTimeline(reads)),
    ),
    getLocalTimeline: traced(
      "GetLocalTimeline",
      counting(() => "local", getSharedTimeline(reads, "local")),
    ),
    getListTimeline: traced("GetListTimeline", counting(listPosition, getListTimeline(reads))),
    getGlobalTimeline: traced(
      "GetGlobalTimeline",
      counting(() => "global", getSharedTimeline(reads, "global")),
    ),
    ...methods,
  };
}

const listPosition = ({ list_id }: { readonly list_id: string }): string => listPositionOf(list_id);

function openPositions(
  { readers }: Pick<RebuildsDeps, "readers">,
  { nats, publish, state, log }: TimelinesDeps & Pick<Serving, "publish">,
) {
  const positions = createPositionStore({ nats, publish });
  const { erased, standings, limits, streams } = state;
  const { takeRead } = limits;
  const asked = { positions, erased, standings, readers, takeRead, ...streams };
  const { getPositions, setPosition } = createPositionMethods(asked);
  return {
    counting: <Asked extends AskedNewer>(timelineOf: (request: Asked) => string, get: GetTimeline<Asked>) =>
      withNewer({ positions, log }, timelineOf, get),
    methods: {
      getPositions: unary("GetPositions", log, getPositions),
      setPosition: unary("SetPosition", log, setPosition),
    },
  };
}

/** Returns a function that resolves to those drops of a pulled author that pages of a user leave out. */
const createHiddenOf =
  ({ hidden, store: { bylinesOf, followedAmong } }: ReturnType<State["openReads"]>, judgesReplies: boolean) =>
  async (user: string, author: string, drops: readonly string[]): Promise<ReadonlySet<string>> => {
    const known = await hidden.known(user);
    const bylines = await bylinesOf(authorTimelineOf(author), drops);
    const viewer = await known.among([{ author }, ...bylines.values()]);
    if (viewer.hides({ author })) return new Set(drops);
    const parents = judgesReplies ? [...bylines.values()].flatMap(({ parent }) => parent ?? []) : [];
    const followed = parents.length === 0 ? undefined : await followedAmong(homeOf(user), parents);
    const judge = new Follows(user, followed ?? []);
    const isShown = (by: Byline): boolean => !viewer.hides(by) && (!judgesReplies || judge.shows(by));
    return new Set([...bylines].flatMap(([drop, by]) => (isShown(by) ? [] : [drop])));
  };

/**
 * Opens the reads of local and global: for pages from the list of the posts service and the log, for audits from both
 * compared.
 */
function openSharedReads(
  { nats: connection, state: { fences, erased }, upstreams }: TimelinesDeps,
  shared: Pick<LogDeps, "maxEntries" | "remoteCap" | "judgesReplies">,
) {
  const { tombstonedAmong, retentionStart } = fences;
  const logged = { connection, tombstonedAmong, erased, ...shared };
  const compared = { ...logged, readListed: createReadListedDrops(upstreams) };
  return {
    readShared: createReadShared({ ...logged, list: createListDrops(upstreams), retentionStart }),
    readListedLog: createReadSharedLog(compared),
    readAuditedLog: createReadSharedLog({ ...compared, lookbacksMs: AUDIT_LOOKBACKS_MS }),
  };
}
