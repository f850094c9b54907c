import { GLOBAL_KEY, homeKey, LOCAL_KEY } from "../contracts/keys.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import type { Logger } from "../kernel/logger.js";
import { collect } from "../timeline/collect.js";
import { observeTimeline } from "../timeline/observe.js";
import type { Snapshot } from "../timeline/ports.js";
import { startOf } from "../timeline/position.js";
import { createRebuild } from "../timeline/rebuild.js";
import { AUDIT_REACHES_MS, createReadSharedLog } from "../timeline/shared-log.nats.js";
import { authorsFor, homeSnapshot, withOlder } from "../timeline/snapshot.js";
import { createSources } from "../timeline/sources.grpc.js";
import { createTimelineStore } from "../timeline/store.redis.js";
import type { Config } from "./config/config.js";
import type { Connections } from "./connections.js";

/** What the upstreams say of homes, and how timelines become that. */
export interface Rebuilding {
  /** Rebuilds a home timeline, whatever state it is in; until that is done what it holds stays. */
  home(user: string): Promise<void>;
  /** Rebuilds local or global from the log; what is older than the log goes, unless `older` is given. */
  shared(name: SharedName, older?: Snapshot): Promise<void>;
  /** Reads what the log says of local or global, as far back as an audit looks. */
  sharedExpected(name: SharedName): Promise<Snapshot>;
  /** The newest `count` drops of a home created after `floor`, newest first, by the upstreams. Times in ms since the epoch. */
  expected(user: string, of: { floor: number; count: number; deadline: number }): Promise<readonly TimelineEntry[]>;
}

type SharedName = "local" | "global";

/** The connections it works over. */
export type RebuildingConnections = Pick<
  Connections,
  "nats" | "scripts" | "fenced" | "fences" | "upstreams" | "readLimits"
>;

/** Wires it to this process's connections. */
export function createRebuilding(
  config: Config,
  { nats, scripts, fenced, fences, upstreams, readLimits }: RebuildingConnections,
  log: Logger,
): Rebuilding {
  const maxEntries = config.storedTimelines.maxEntries;
  const store = createTimelineStore(scripts, fenced, { maxEntries, ttlMs: config.storedTimelines.ttlMs });
  const { inTurn, calls } = readLimits;
  const openSources = createSources(upstreams("reads"), calls);
  const rebuild = createRebuild({ store, fences, inTurn, log, observe: observeTimeline.rebuilt });
  const readSharedLog = createReadSharedLog(nats, maxEntries);
  return {
    home: (user) => rebuild(homeKey(user), homeSnapshot({ openSources, maxEntries }, user), { afresh: true }),
    shared: (name, older) =>
      rebuild(
        name === "local" ? LOCAL_KEY : GLOBAL_KEY,
        async () => {
          const logged = await readSharedLog(name);
          return older ? withOlder(logged, older, maxEntries) : logged;
        },
        { afresh: true },
      ),
    sharedExpected: createReadSharedLog(nats, maxEntries, AUDIT_REACHES_MS),
    expected: (reader, { floor, count, deadline }) =>
      inTurn(async () => {
        const sources = openSources();
        const authors = await authorsFor(sources, reader, deadline);
        const above = floor > 0 ? startOf(floor + 1) : undefined;
        return (await collect(sources, { reader, authors, above, count, deadline })).entries;
      }),
  };
}
