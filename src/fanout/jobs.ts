import { DLQ_HEADER } from "../contracts/dead-letters.js";
import { chunkId, parseJob } from "../contracts/jobs.js";
import type { Handler } from "../delivery/handler.js";
import type { Apply } from "./apply.js";
import { audienceOf } from "./audience.js";
import { completedOf } from "./completed.js";
import type { Complete, Progress, UntilCovered } from "./ports.js";

interface JobDeps {
  readonly apply: Apply;
  readonly progress: Progress;
  readonly complete: Complete;
  readonly untilCovered?: UntilCovered | undefined;
}

/** Handles `fanout.job.*`: writes one chunk of a large fan-out, and says so when it was the last one. */
export function createJobHandler({ apply, progress, complete, untilCovered }: JobDeps): Handler {
  return async (delivery, { stopping }) => {
    const { user_ids, ...change } = parseJob(delivery.body);
    // A redriven job was not pending when the last notes were written: a loss right after it would not be replayed from there.
    if (delivery.headers.get(DLQ_HEADER.redriveCount) !== undefined) await untilCovered?.(change.admitted_at, stopping);
    await apply.to(change, audienceOf(user_ids));
    const finished = await progress.done(change, chunkId(user_ids));
    if (finished) await complete(completedOf(change, finished));
  };
}
