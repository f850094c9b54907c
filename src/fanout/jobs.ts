import { chunkId, parseJob } from "../contracts/jobs.js";
import type { Handler } from "../delivery/handler.js";
import type { Apply } from "./apply.js";
import { audienceOf } from "./audience.js";
import { completedOf } from "./completed.js";
import type { Complete, Progress } from "./ports.js";

interface JobDeps {
  readonly apply: Apply;
  readonly progress: Progress;
  readonly complete: Complete;
}

/** Handles `fanout.job.*`: writes one chunk of a large fan-out, and says so when it was the last one. */
export function createJobHandler({ apply, progress, complete }: JobDeps): Handler {
  return async (delivery) => {
    const { user_ids, ...change } = parseJob(delivery.body);
    await apply.to(change, audienceOf(user_ids));
    const finished = await progress.done(change, chunkId(user_ids));
    if (finished) await complete(completedOf(change, finished));
  };
}
