import { type EventName, SUBJECT_OF, type TimelineEvent } from "../../src/contracts/events.js";
import type { EdgeJob, FanoutCompleted, FanoutJob } from "../../src/contracts/fanout.js";
import type { DropNotification, SharedNotification } from "../../src/contracts/stream-events.js";
import { jobSubject } from "../../src/contracts/subjects.js";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { composeFanout } from "../../src/fanout/fanout.js";
import { createNotify } from "../../src/fanout/notify.js";
import { codeOf } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { DAY } from "../../src/kernel/time.js";
import { createLists } from "../../src/state/entries/lists.redis.js";
import { createFences } from "../../src/state/fences/fences.js";
import { createIsApart } from "../../src/state/hidden/apart.redis.js";
import type { ChangeSources, HidingChange } from "../../src/state/hidden/changes.redis.js";
import { createListeners } from "../../src/state/listeners/listeners.redis.js";
import { createProgress } from "../../src/state/messages/progress.redis.js";
import { createPublishing } from "../../src/state/messages/publishing.redis.js";
import { contextWith, deliveryOf } from "./deliveries.js";
import { fanoutSourcesOf, historyOf } from "./memory-upstreams.js";
import { adaptersOn, clockOn, NOBODY_ERASED, type ReadHiddenOnce, type RedisBench } from "./redis.js";
import type { TimelineEvent as Published } from "./timeline-events.js";
import { World } from "./world.js";

export const DROP = { drop_id: "d1", user_id: "ada", visibility: "public", created_at: Date.now() - 60_000 } as const;

/** A world in which ada has so many followers: f0, f1, and so on. */
export function followers(count: number): World {
  const world = new World();
  for (let index = 0; index < count; index++) world.follow(`f${index}`, "ada");
  return world;
}

/** A log in memory: what was admitted, and when. */
export type MemoryLog = { readonly event: TimelineEvent; readonly time: number }[];

/** One process of fan-out: its handlers, its cache, and what it sent. */
export interface FanoutBench {
  readonly handlers: ReturnType<typeof composeFanout>["handlers"];
  readonly deps: FanoutDeps;
  readonly hidings: readonly HidingChange[];
  /** Events told on the streams of local and global. */
  readonly shared: SharedNotification[];
  readonly jobs: FanoutJob[];
  readonly edgeJobs: EdgeJob[];
  readonly notified: { readonly users: readonly string[]; readonly notification: DropNotification }[];
  readonly completed: FanoutCompleted[];
  readonly applied: { readonly event: string; readonly admittedAt: number }[];
}

const nobody = new Map();

/** A record that no server keeps. */
function erasedHere(): FanoutDeps["erased"] {
  const users = new Set<string>();
  return {
    among: async (some) => new Set(some.filter((user) => users.has(user))),
    record: async (user) => users.add(user).size > 0,
    announce: async () => undefined,
    report: async () => undefined,
    reports: async () => new Map(),
  };
}

/** Every author is pushed. */
const NOBODY_PULLED: FanoutDeps["authorStates"] = {
  copy: () => nobody,
  refresh: async () => nobody,
  updateStates: async () => undefined,
  forget: async () => undefined,
  due: async () => [],
  proceed: async () => undefined,
};

/** Fan-out on a real Redis, with the upstreams, the log and the queue in memory. */
export function openFanout(
  redis: Pick<RedisBench, "scripts">,
  world: World,
  how: {
    readonly log?: MemoryLog;
    readonly maxEntries?: number;
    readonly pageSize?: number;
    readonly activeOnly?: boolean;
    readonly readHidden?: ReadHiddenOnce;
    readonly patienceMs?: number;
    readonly erased?: FanoutDeps["erased"];
    readonly changeSources?: Partial<ChangeSources>;
    readonly judgesReplies?: boolean;
    readonly change?: (deps: FanoutDeps) => FanoutDeps;
  } = {},
): FanoutBench {
  const { log = [], maxEntries = 1_000, pageSize = 100, activeOnly = false, readHidden, change = (deps) => deps } = how;
  const { erased = erasedHere(), patienceMs, judgesReplies = false } = how;
  const sources = fanoutSourcesOf(world, pageSize);
  const { command } = redis.scripts;
  const counts = async (_user: string, drops: readonly string[]) => drops.map((drop) => world.countsOf(drop));
  const changeSources: Omit<ChangeSources, "readAllHidings"> = {
    readHidings: async (user, targets) => {
      const hidden = world.hiddenFrom(user);
      return targets.map((target) => ({ hiding: hidden.get(target) }));
    },
    isApart: createIsApart({ ...sources, command, counts }),
    ...how.changeSources,
  };
  const judging = { judgesReplies, isFollowing: async (user: string, other: string) => world.follows(user, other) };
  const shown = { activeOnly, readHidden, patienceMs, erased, changeSources, ...judging };
  const adapters = adaptersOn(redis.scripts, { maxEntries, ...shown });
  const { writer, authors, fenceStore, relations, standings, veiled, listenersAmong } = adapters;
  const jobs: FanoutJob[] = [];
  const hidings: HidingChange[] = [];
  const shared: SharedNotification[] = [];
  const edgeJobs: EdgeJob[] = [];
  const notified: FanoutBench["notified"] = [];
  const completed: FanoutCompleted[] = [];
  const applied: FanoutBench["applied"] = [];
  const fences = createFences({ store: fenceStore, readHistory: historyOf(log), log: silent });
  const fillPulls = (user: string): Promise<void> =>
    adaptersOn(redis.scripts, { maxEntries, erased }, deps.authorStates).pulls.fill(user, async () =>
      world.followingOf(user),
    );
  const deps = change({
    writer,
    authors,
    authorStates: NOBODY_PULLED,
    renewList: createLists(redis.scripts).renew,
    fences,
    erased,
    listeners: createListeners({
      scripts: redis.scripts,
      clock: clockOn(redis.scripts),
      unfollowedAmong: fences.unfollowedAmong,
      fillPulls,
      findLists: (member) => deps.findLists(member, []),
    }),
    ...{ relations, standings, veiled, listenersAmong },
    notifyHiding: async (changes) => void hidings.push(...changes),
    notifyShared: async (all) => void shared.push(...all.map(({ notification }) => notification)),
    notify: async (all) => {
      const everybody = { listenersAmong: async () => () => true, erased: NOBODY_ERASED };
      const told = await createNotify({ ...deps, ...everybody, publish: async () => undefined })(all);
      notified.push(...told);
      return told;
    },
    queue: async (more) => void jobs.push(...more),
    queueEdges: async (more) => void edgeJobs.push(...more),
    progress: createProgress(redis.scripts),
    publishing: createPublishing(redis.scripts),
    complete: async (all) => void completed.push(...all.map((one) => one.completed)),
    applied: (event, admittedAt) => void applied.push({ event, admittedAt }),
    ...sources,
    ...{ maxEntries, judgesReplies },
    recentMs: DAY,
    restRate: 1_000_000,
  });
  return {
    handlers: composeFanout(deps).handlers,
    deps,
    hidings,
    shared,
    jobs,
    edgeJobs,
    notified,
    completed,
    applied,
  };
}

/** An event in the log, as the planner or the graph consumer is handed it. */
export function logged({ channel, payload }: Published, time: number, seq = 1) {
  return deliveryOf({ subject: SUBJECT_OF[channel as EventName], json: payload, time, seq });
}

/** Handles one event; while the fences are being refilled elsewhere it waits, as delivery does. */
export async function handle(bench: FanoutBench, event: Published, time = Date.now()): Promise<void> {
  const { single } = /^(user|standing)_/.test(event.channel) ? bench.handlers.graph : bench.handlers.drops;
  await insisting(() => single(logged(event, time), contextWith()));
}

/** Does the jobs that are queued, and those that come meanwhile. */
export async function work(bench: FanoutBench): Promise<void> {
  for (let job = bench.jobs.shift(); job; job = bench.jobs.shift()) {
    const delivery = deliveryOf({ stream: "FANOUT", subject: jobSubject(job), json: job });
    const { single } = bench.handlers[job.tier === "rest" ? "rest" : "jobs"];
    await insisting(() => single(delivery, contextWith()));
  }
}

/** Waits while the fences are being refilled elsewhere, as delivery does. */
export async function insisting(attempt: () => Promise<void>): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      return await attempt();
    } catch (error) {
      if (codeOf(error) !== "unavailable" || tries > 2_000) throw error;
      await new Promise(setImmediate);
    }
  }
}
