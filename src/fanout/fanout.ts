import {
  type DropCreated,
  type DropDeleted,
  type DropEvent,
  parseStored,
  type RemoteDropReceived,
  type TimelineEvent,
} from "../contracts/events.js";
import { type Fences, writeUnlessDeleted } from "../contracts/fences.js";
import { SILENT_HEADER } from "../contracts/subjects.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import type { Handler } from "../delivery/handler.js";
import { createBatch } from "../kernel/sharing.js";
import { type Change, createApply } from "./apply.js";
import { createApplyEdges, type EdgeApplied } from "./graph.js";
import { createJobHandler, createPlan, Followers, type Plan, type UntilCovered } from "./plan.js";
import type { Complete, Notify, QueueJobs } from "./publish.nats.js";
import type { Sources } from "./sources.grpc.js";
import { audienceOf, type Progress, type TimelineWriter } from "./store.redis.js";

const EDGES_A_BATCH = 256;

export interface FanoutDeps extends Sources {
  readonly writer: TimelineWriter;
  readonly fences: Fences;
  readonly notify: Notify;
  readonly queue: QueueJobs;
  readonly progress: Progress;
  readonly complete: Complete;
  readonly applied: EdgeApplied;
  readonly maxEntries: number;
  readonly untilCovered?: UntilCovered | undefined;
}

export interface Fanout {
  readonly handlers: { readonly drops: Handler; readonly graph: Handler; readonly jobs: Handler };
  /** Applies an event of the log again: nobody is notified, chunks are written in place, no completion is published. */
  readonly apply: (event: TimelineEvent, of: { readonly time: number }) => Promise<void>;
}

export function composeFanout(deps: FanoutDeps): Fanout {
  const followers = new Followers(deps.readFollowers);
  const applyOnly = createApplyEvent({ ...deps, ...noOutput(deps) }, followers);
  const applyEvent = createApplyEvent(deps, followers);
  const events: Handler = async ({ subject, body, time, headers }) => {
    const silent = headers.get(SILENT_HEADER) !== undefined;
    await applyEvent(parseStored(subject, body, time), { admitted_at: time, ...(silent ? { silent } : {}) });
  };
  return {
    handlers: { drops: events, graph: events, jobs: createJobHandler({ ...deps, apply: createApply(deps) }) },
    apply: (event, { time }) => applyOnly(event, { admitted_at: time, silent: true }),
  };
}

type ApplyEvent = (event: TimelineEvent, admission: Admission) => Promise<void>;

function createApplyEvent(deps: FanoutDeps, followers: Followers): ApplyEvent {
  const plan = createPlan({ ...deps, apply: createApply(deps), followers });
  const applyDrop = createApplyDrop({ ...deps, plan });
  const applyEdge = createBatch(EDGES_A_BATCH, createApplyEdges(deps));
  return async (event, admission) =>
    event.name === "user_followed" || event.name === "user_unfollowed"
      ? applyEdge({ event, admittedAt: admission.admitted_at })
      : applyDrop(event, admission);
}

const nothing = async (): Promise<undefined> => undefined;

function noOutput(deps: FanoutDeps): Pick<FanoutDeps, "notify" | "queue" | "progress" | "complete" | "applied"> {
  const progress = { planned: nothing, done: nothing };
  const outputs = { notify: nothing, progress, complete: nothing, applied: nothing };
  const { chunk } = createApply({ ...deps, ...outputs });
  return {
    ...outputs,
    queue: async (jobs) => {
      for (const { user_ids, ...change } of jobs) await chunk(change, audienceOf(user_ids));
    },
  };
}

interface DropDeps {
  readonly fences: Fences;
  readonly writer: TimelineWriter;
  readonly plan: (plan: Plan) => Promise<void>;
}

/** When an event was admitted to the log (ms since the epoch), and whether nobody is to be notified of it. */
type Admission = Pick<Change, "admitted_at" | "silent">;

function createApplyDrop(deps: DropDeps): (event: DropEvent, admission: Admission) => Promise<void> {
  return async ({ name, payload }, admission) => {
    if (name === "drop_created") return created(deps, payload, admission);
    if (name === "drop_deleted") return deleted(deps, payload, admission);
    return received(deps, payload, admission);
  };
}

async function created(deps: DropDeps, drop: DropCreated, admission: Admission): Promise<void> {
  const { drop_id, created_at, user_id, visibility } = drop;
  if (visibility === "public") await addShared(deps, ["local", "global"], { drop: drop_id, score: created_at });
  const change = { action: "add", event: "drop_created", drop_id, created_at, user_id, ...admission } as const;
  await deps.plan({ ...change, includeAuthor: true, recipients: recipientsOf(drop) });
}

async function received(deps: DropDeps, drop: RemoteDropReceived, admission: Admission): Promise<void> {
  const { drop_id, created_at, user_id, visibility } = drop;
  if (user_id !== undefined) await deps.writer.rememberActor(drop_id, user_id);
  if (visibility === "public") await addShared(deps, ["global"], { drop: drop_id, score: created_at });
  const change = { action: "add", event: "ap_drop_received", drop_id, created_at, user_id, ...admission } as const;
  await deps.plan({ ...change, includeAuthor: false, recipients: recipientsOf(drop) });
}

const recipientsOf = ({ visibility, recipients = [] }: DropCreated | RemoteDropReceived) =>
  visibility === "direct" ? recipients : undefined;

async function addShared(
  { fences, writer }: DropDeps,
  timelines: readonly ("local" | "global")[],
  entry: TimelineEntry,
): Promise<void> {
  if (entry.score < fences.retentionStart()) return;
  await writeUnlessDeleted([entry.drop], {
    write: () => writer.addShared(timelines, entry),
    tombstonedAmong: fences.tombstonedAmong,
    remove: () => writer.removeShared(entry.drop),
  });
}

async function deleted(deps: DropDeps, { drop_id, user_id }: DropDeleted, admission: Admission): Promise<void> {
  const { fences, writer } = deps;
  const created_at = admission.admitted_at;
  await fences.recordTombstone(drop_id, created_at);
  const author = user_id ?? (await writer.actorOf(drop_id));
  await writer.rememberCreation(drop_id, author);
  await writer.removeShared(drop_id);
  const change = { action: "remove", event: "drop_deleted", drop_id, created_at, user_id: author } as const;
  await deps.plan({ ...change, ...admission, includeAuthor: true });
}
