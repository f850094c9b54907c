import {
  type DropCreated,
  isEdge,
  isErasure,
  isRelation,
  isStanding,
  parseStored,
  type RemoteDropReceived,
  type TimelineEvent,
} from "../contracts/events.js";
import type { FanoutJob } from "../contracts/fanout.js";
import { SILENT_HEADER } from "../contracts/subjects.js";
import { parentOf } from "../contracts/timelines.js";
import type { BatchHandler, Delivery, Handlers } from "../delivery/handler.js";
import { createThrottle } from "../kernel/concurrency.js";
import { Foreground } from "../kernel/foreground.js";
import { SECOND } from "../kernel/time.js";
import {
  audienceOf,
  dropsWithoutErased,
  usersOfEdge,
  usersOfRelation,
  type VeilUsers,
  withoutErased,
} from "../state/index.js";
import { sampledTrace } from "../telemetry/spans.js";
import { createApply } from "./apply.js";
import { type AdmittedChange, isAnnounced, mayNotify } from "./change.js";
import { planDeletions, recordTombstones } from "./deletions.js";
import type { FanoutDeps } from "./deps.js";
import { type AdmittedEdit, createTellEdits } from "./edits.js";
import { createApplyEdges } from "./graph.js";
import { createGraphHandlers, recordErasure } from "./graph-jobs.js";
import { createJobHandlers } from "./jobs.js";
import { createPlan, FollowerCache, isRedriven, type Plan } from "./plan.js";
import type { Trace } from "./publish.nats.js";
import { createApplyRelations } from "./relations.js";
import { type Addition, writeShared } from "./shared.js";
import { applyStandingEvents, createApplyStandings, createVeilUsers, veilNew } from "./standings.js";

/** Maximum time that jobs, and pages of long follower lists, wait for batches of drops: at least 50 a second begin. */
const JOBS_WAIT_MS = SECOND / 50;
/** Maximum time that a batch of the last tier waits for batches of drops and of other jobs. */
const REST_WAIT_MS = SECOND;

export interface Fanout {
  readonly handlers: Readonly<Record<"drops" | "graph" | "hotGraph" | "jobs" | "rest", Handlers>>;
  readonly veilUsers: VeilUsers;
  /** Applies an event of the log again: notifies nobody, writes chunks in place, and publishes no completion. */
  readonly apply: (event: TimelineEvent, options: { readonly time: number }) => Promise<void>;
}

export function composeFanout(deps: FanoutDeps): Fanout {
  const followers = new FollowerCache(deps.readFollowers);
  const beforeJobs = new Foreground(JOBS_WAIT_MS);
  const yielding = async (jobs: readonly FanoutJob[]): Promise<void> => {
    await beforeJobs.untilIdle();
    await deps.queue(jobs);
  };
  const drops = createApplyDrops({ ...deps, queue: yielding }, followers);
  const beforeRest = new Foreground(REST_WAIT_MS);
  const throttle = createThrottle(deps.restRate);
  const yields = { ...deps, apply: createApply({ ...deps, yields: true }) };
  const jobs = createJobHandlers({ ...yields, throttle: () => beforeJobs.untilIdle() });
  const rest = createJobHandlers({
    ...yields,
    throttle: async (homes, stopping) => {
      await beforeRest.untilIdle();
      await throttle(stopping, homes);
    },
  });
  const silently = { ...deps, ...noOutput(deps) };
  const dropsAgain = createApplyDrops(silently, followers);
  const edgesAgain = createApplyEdges(silently);
  const relationsAgain = createApplyRelations(silently);
  const applyStandings = createApplyStandings(deps);
  return {
    handlers: {
      drops: {
        single: async (delivery) => drops.single(dropOf(delivery)),
        batch: (...batch) => beforeRest.run(() => beforeJobs.run(() => drops.batch(...batch))),
      },
      ...createGraphHandlers({ ...deps, throttle: () => beforeJobs.untilIdle() }),
      jobs: { ...jobs, batch: (...batch) => beforeRest.run(() => jobs.batch(...batch)) },
      rest,
    },
    veilUsers: createVeilUsers(deps),
    apply: async (event, { time }) => {
      const admittedAt = time;
      if (isErasure(event)) await recordErasure(deps, event, admittedAt);
      else if (isStanding(event)) await applyStandingEvents(deps, applyStandings, [event]);
      else if (isEdge(event))
        await edgesAgain(
          (await withoutErased(deps.erased, [event], usersOfEdge)).map((kept) => ({ event: kept, admittedAt })),
        );
      else if (isRelation(event))
        await relationsAgain(
          (await withoutErased(deps.erased, [event], usersOfRelation)).map((kept) => ({ event: kept, admittedAt })),
        );
      // An edit changes no timeline.
      else if (event.name !== "drop_edited") await dropsAgain.single({ event, admitted_at: time, silent: true });
    },
  };
}

const nothing = async (): Promise<undefined> => undefined;

type Outputs = Pick<
  FanoutDeps,
  "notify" | "notifyHiding" | "notifyShared" | "queue" | "progress" | "complete" | "applied"
>;

function noOutput(deps: FanoutDeps): Outputs {
  const progress = { planned: nothing, done: nothing };
  const told = { notify: async () => [], notifyHiding: nothing, notifyShared: nothing };
  const outputs = { ...told, progress, complete: nothing, applied: nothing };
  const { chunks } = createApply({ ...deps, ...outputs, yields: true });
  return {
    ...outputs,
    queue: async (jobs) => {
      for (const { user_ids, ...change } of jobs) await chunks([{ change, audience: audienceOf(user_ids) }]);
    },
  };
}

type AdmittedDrop = AdmittedChange | AdmittedEdit;

function dropOf({ subject, body, time, headers }: Delivery, trace?: Trace): AdmittedDrop {
  const silent = headers.get(SILENT_HEADER) === undefined ? undefined : true;
  return { event: parseStored(subject, body, time), admitted_at: time, silent, trace } as AdmittedDrop;
}

interface ApplyDrops {
  readonly single: (drop: AdmittedDrop) => Promise<void>;
  readonly batch: BatchHandler;
}

function createApplyDrops(deps: FanoutDeps, followers: FollowerCache): ApplyDrops {
  const plan = createPlan({ ...deps, apply: createApply(deps), followers });
  const tellEdits = createTellEdits({ ...deps, followers });
  return {
    single: async (admitted) => {
      const [drop] = await dropsWithoutErased(deps.erased, [admitted]);
      if (drop === undefined) return;
      if (isEdit(drop)) return tellEdits.single(drop);
      const drops = [drop];
      const plans = isDeletion(drop)
        ? await planDeletions(deps, drops, await recordTombstones(deps, drops))
        : await planPublications(deps, drops);
      for (const each of plans) await plan.single(each);
    },
    // Removals come last: once its tombstone is set no page shows a drop, and other deletions need not wait. Edits follow
    // the publications of their drops.
    batch: async (deliveries, { beginNext }) => {
      const first = deliveries.filter((delivery) => !isRedriven(delivery));
      const drops = await dropsWithoutErased(
        deps.erased,
        first.map((delivery) => dropOf(delivery, sampledTrace(delivery.headers))),
      );
      const handled = first.flatMap((delivery, index) => {
        const drop = drops[index];
        return drop === undefined ? [] : { delivery, drop };
      });
      const done = new Set(first.filter((_, index) => drops[index] === undefined));
      const apply = async (
        group: readonly { readonly delivery: Delivery; readonly drop: AdmittedChange }[],
        planAll: (drops: readonly AdmittedChange[]) => Promise<readonly Plan[]>,
      ) => {
        if (group.length === 0) return;
        const plans = await planAll(group.map(({ drop }) => drop));
        const postponed = new Set(await plan.batch(plans));
        for (const [index, { delivery }] of group.entries())
          if (!postponed.has(plans[index] as Plan)) done.add(delivery);
      };
      const changes = handled.flatMap(({ delivery, drop }) => (isEdit(drop) ? [] : { delivery, drop }));
      const deletions = changes.filter(({ drop }) => isDeletion(drop));
      const dead = deletions.map(({ drop }) => drop);
      const authors = dead.length === 0 ? new Map() : await recordTombstones(deps, dead);
      const publications = deletions.length === 0 ? changes : changes.filter(({ drop }) => !isDeletion(drop));
      await apply(publications, (drops) => planPublications(deps, drops));
      beginNext?.();
      const tellAll = async (): Promise<void> => {
        const edits = handled.flatMap(({ delivery, drop }) => (isEdit(drop) ? { delivery, drop } : []));
        if (edits.length === 0) return;
        const untold = await tellEdits.batch(edits.map(({ drop }) => drop));
        for (const { delivery, drop } of edits) if (!untold.includes(drop)) done.add(delivery);
      };
      await Promise.all([tellAll(), apply(deletions, (drops) => planDeletions(deps, drops, authors))]);
      return deliveries.filter((delivery) => !done.has(delivery));
    },
  };
}

const isDeletion = ({ event }: AdmittedChange): boolean => event.name === "drop_deleted";
const isEdit = (drop: AdmittedDrop): drop is AdmittedEdit => drop.event.name === "drop_edited";

/** Writes the shared timelines, and returns the plans for the homes, in the same order. */
async function planPublications(deps: FanoutDeps, drops: readonly AdmittedChange[]): Promise<readonly Plan[]> {
  const { writer, judgesReplies } = deps;
  const shared: Addition[] = [];
  const remembering: Promise<void>[] = [];
  const plans = drops.map(({ event: { name, payload }, admitted_at, silent, trace }): Plan => {
    const { drop_id, created_at, user_id, visibility, recipients = [] } = payload as DropCreated | RemoteDropReceived;
    const isLocal = name === "drop_created";
    const { repost_of, repost_author } = repostOf(payload);
    const reply_to_author = parentOf(payload, visibility === "direct");
    const isLeftOut = judgesReplies && reply_to_author !== undefined;
    // Local and global show an original once, not with each of its reposts.
    if (visibility === "public" && repost_of === undefined && !isLeftOut)
      shared.push({
        timelines: isLocal ? ["local", "global"] : ["global"],
        entry: {
          drop: drop_id,
          score: created_at,
          by: { author: user_id ?? "", parent: reply_to_author },
          ...(isLocal ? {} : { remote: true }),
        },
        isTold: mayNotify({ silent, admitted_at, created_at }),
        trace,
      });
    const for_followers = visibility === "followers" || visibility === "direct" ? true : undefined;
    const isPlain = repost_of === undefined && reply_to_author === undefined && !for_followers;
    const added = { action: "add", event: name, drop_id, created_at, admitted_at, silent } as const;
    const change = isPlain ? added : { ...added, repost_of, repost_author, reply_to_author, for_followers };
    const direct = visibility === "direct" ? recipients : undefined;
    if (direct) remembering.push(writer.rememberDirect(drop_id));
    if (!isLocal && user_id !== undefined) remembering.push(writer.rememberActor(drop_id, user_id));
    return { change, user_id, includeAuthor: isLocal, recipients: direct, trace };
  });
  await Promise.all(remembering);
  const announced = plans.flatMap(({ change }) => (isAnnounced(change) ? change : []));
  const posted = drops.map(({ event }) => event.payload);
  // An edit of a drop that local has, and that is not noted as being published, is told after its `new_drop`.
  await deps.publishing.begin(announced);
  await Promise.all([writeShared(deps, shared), veilNew(deps, posted)]);
  return plans;
}

const repostOf = (payload: object): Pick<DropCreated, "repost_of" | "repost_author"> =>
  "repost_of" in payload ? (payload as DropCreated) : {};
