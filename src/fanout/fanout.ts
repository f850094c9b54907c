import { parseStored, type TimelineEvent } from "../contracts/events.js";
import type { Fences } from "../contracts/fences.js";
import { SILENT_HEADER } from "../contracts/silence.js";
import type { Handler } from "../delivery/handler.js";
import { createApply } from "./apply.js";
import { type Admission, createApplyDrop } from "./drops.js";
import { createApplyEdge, type EdgeApplied } from "./graph.js";
import { createJobHandler, createPlan, Followers, type UntilCovered } from "./plan.js";
import type { Complete, Notify, QueueJobs } from "./publish.nats.js";
import type { Sources } from "./sources.grpc.js";
import { audienceOf, type Progress, type TimelineWriter } from "./store.redis.js";

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

/** Composes fan-out from functions. */
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
  const applyEdge = createApplyEdge(deps);
  return async (event, admission) =>
    event.name === "user_followed" || event.name === "user_unfollowed"
      ? applyEdge(event, admission.admitted_at)
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
