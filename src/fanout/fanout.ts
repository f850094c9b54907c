import { parseStored, type TimelineEvent } from "../contracts/events.js";
import type { Fences } from "../contracts/fences.js";
import { SILENT_HEADER } from "../contracts/silence.js";
import type { Handler } from "../delivery/handler.js";
import { createApply } from "./apply.js";
import { audienceOf, Followers, type ReadFollowers } from "./audience.js";
import { type Admission, createApplyDrop } from "./drops.js";
import { createApplyEdge } from "./graph.js";
import { createJobHandler } from "./jobs.js";
import { createForLeavers } from "./leavers.js";
import { createPlan } from "./plan.js";
import type {
  Complete,
  EdgeApplied,
  Notify,
  Progress,
  QueueJobs,
  ReadAuthorDrops,
  ReadFollowing,
  TimelineWriter,
  UntilCovered,
} from "./ports.js";

/** Everything fan-out works with. */
export interface FanoutDeps {
  readonly writer: TimelineWriter;
  readonly fences: Fences;
  readonly notify: Notify;
  readonly queue: QueueJobs;
  readonly progress: Progress;
  readonly complete: Complete;
  readonly applied: EdgeApplied;
  readonly readFollowers: ReadFollowers;
  readonly readFollowing: ReadFollowing;
  readonly readAuthorDrops: ReadAuthorDrops;
  readonly maxEntries: number;
  /** Unset: nothing waits for it. */
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
  const apply = createApply(deps);
  const plan = createPlan({ ...deps, apply, forLeavers: createForLeavers({ ...deps, apply }), followers });
  const applyDrop = createApplyDrop({ ...deps, apply, plan });
  const applyEdge = createApplyEdge(deps);
  return async (event, admission) =>
    event.name === "user_followed" || event.name === "user_unfollowed"
      ? applyEdge(event, admission.admitted_at)
      : applyDrop(event, admission);
}

const nothing = async (): Promise<undefined> => undefined;

function noOutput(deps: FanoutDeps): Pick<FanoutDeps, "notify" | "queue" | "progress" | "complete" | "applied"> {
  const outputs = {
    notify: nothing,
    progress: { planned: nothing, done: nothing },
    complete: nothing,
    applied: nothing,
  };
  const apply = createApply({ ...deps, ...outputs });
  return {
    ...outputs,
    queue: async (jobs) => {
      for (const { user_ids, ...change } of jobs) await apply.to(change, audienceOf(user_ids));
    },
  };
}
