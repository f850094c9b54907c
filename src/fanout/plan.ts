import type { Fences } from "../contracts/fences.js";
import { chunkId, type FanoutJob, MAX_CHUNK_USERS } from "../contracts/jobs.js";
import type { Apply, Change } from "./apply.js";
import type { Followers } from "./audience.js";
import { completedOf } from "./completed.js";
import type { Complete, Progress, QueueJobs } from "./ports.js";

interface PlanDeps {
  readonly fences: Fences;
  readonly followers: Followers;
  readonly apply: Apply;
  readonly forLeavers: (change: Change) => Promise<void>;
  readonly queue: QueueJobs;
  readonly progress: Progress;
  readonly complete: Complete;
}

/** A change whose audience is still to be found. */
export interface Plan extends Omit<Change, "generation"> {
  /** Whether it also concerns the author's own home. */
  readonly includeAuthor: boolean;
}

/** Bytes of user ids a job carries at most, as JSON; a message may have 1 MiB with its headers. */
const MAX_JOB_BYTES = 512 * 1024;

/**
 * Fans a change out to an author's followers: those on one page at once,
 * larger audiences as one job a page, whose books are kept.
 *
 * The generation is read before the followers are, so that a change of the
 * list in between is seen after the write.
 */
export function createPlan(deps: PlanDeps): (plan: Plan) => Promise<void> {
  return async ({ includeAuthor, ...plan }) => {
    const generation = await deps.fences.generation(plan.user_id);
    const change: Change = { ...plan, generation };
    const chunks: string[] = [];
    let recipients = 0;
    for await (const page of deps.followers.pages({ author: plan.user_id, generation, includeAuthor })) {
      if (page.only) {
        await deps.apply.to(change, page);
        await deps.forLeavers(change);
        await deps.complete(completedOf(change, { recipients: page.ids.length, chunks: 1 }));
        return;
      }
      const jobs = jobsOf(change, page.ids);
      await deps.queue(jobs);
      for (const job of jobs) chunks.push(chunkId(job.user_ids));
      recipients += page.ids.length;
    }
    await deps.forLeavers(change);
    const finished = await deps.progress.planned(plan, chunks, recipients);
    if (finished) await deps.complete(completedOf(change, finished));
  };
}

/** One job a page, or more where the ids are long or many. */
function jobsOf(change: Change, users: readonly string[]): FanoutJob[] {
  const jobs: FanoutJob[] = [];
  let part: string[] = [];
  let bytes = 0;
  for (const user of users) {
    const size = Buffer.byteLength(JSON.stringify(user)) + 1;
    if (bytes + size > MAX_JOB_BYTES || part.length === MAX_CHUNK_USERS) {
      jobs.push({ ...change, user_ids: part });
      part = [];
      bytes = 0;
    }
    part.push(user);
    bytes += size;
  }
  if (part.length > 0) jobs.push({ ...change, user_ids: part });
  return jobs;
}
