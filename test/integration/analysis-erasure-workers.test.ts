import { expect, test } from "@jest/globals";
import { AccountGone } from "../../src/analysis/sources/source.js";
import { ANALYSIS_COMPLETED, STREAM } from "../../src/contracts/subjects.js";
import { type Failpoint, hookFailpoints } from "../../src/kernel/failpoints.js";
import { encodeId } from "../../src/kernel/ids.js";
import { ADA, sharedErasureBench } from "../support/analysis-erasure.js";
import { eventually } from "../support/eventually.js";

const { saga, left } = sharedErasureBench();

/** Holds the first message that is at the step, until the function returned is called. */
function holdAt(step: Failpoint) {
  const held: { reached: boolean; go: (failure?: Error) => void } = { reached: false, go: () => undefined };
  hookFailpoints(async (name) => {
    if (name !== step || held.reached) return;
    held.reached = true;
    await new Promise<void>((resolve, reject) => {
      held.go = (failure) => (failure ? reject(failure) : resolve());
    });
  });
  return held;
}

const STEPS = [
  ...["handle", "analysed", "analysis-stored", "analysis-cached", "analysis-published", "rewarded", "reward-published"],
  ...["handled", "analysis-failed"],
] as Failpoint[];
const cases = STEPS.flatMap((step) =>
  (
    [
      [ADA, "bob"],
      ["bob", ADA],
    ] as const
  ).flatMap(([user_id, did]) => [
    { step, user_id, did, fails: false },
    { step, user_id, did, fails: true },
  ]),
);

test.each(cases)(
  "a worker at $step with an analysis by $user_id leaves nothing (fails: $fails)",
  async (one) => {
    const { step, user_id, did, fails } = one;
    await saga.listen(user_id);
    if (step === "analysis-failed")
      saga.posts = () => {
        throw new AccountGone("account_unknown", "there is none");
      };
    const held = holdAt(step);
    saga.startWorkers();
    await saga.ask({ user_id, did });
    await eventually(() => held.reached, "the step is reached");
    await saga.erase(ADA);
    await saga.nats.manager.streams.purge(STREAM.notify);
    held.go(fails ? new Error("the step failed") : undefined);
    await saga.settled(30_000);
    await saga.redis.raw.zrem("sse_recent:users", encodeId(ADA));
    expect(await left()).toEqual([]);
    expect(await saga.bodies(STREAM.dlq)).toEqual([]);
    const told = await saga.bodies(STREAM.notify);
    expect(told.filter((notification) => user_id === ADA || notification["did"] === ADA)).toEqual([]);
  },
  60_000,
);

// The look of the worker was before the erasure, and its write is after it.
test.each([
  [ANALYSIS_COMPLETED, [ADA, "bob"]],
  [ANALYSIS_COMPLETED, ["bob", ADA]],
  ["events.timeline.failed", [ADA, "nobody"]],
  ["events.timeline.failed", [ADA, "broken"]],
  ["events.xp.earned", [ADA, "bob"]],
  ["$KV.ANALYSES.", [ADA, "bob"]],
  ["$KV.ANALYSES.", ["bob", ADA]],
] as const)(
  "a worker that writes to %s after the erasure removes it again: %s",
  async (subject, [user_id, did]) => {
    const held: { reached: boolean; go: () => void } = { reached: false, go: () => undefined };
    saga.publishing = (to) => {
      if (!to.startsWith(subject) || held.reached) return undefined;
      held.reached = true;
      return new Promise<void>((resolve) => {
        held.go = resolve;
      });
    };
    saga.startWorkers();
    await saga.ask({ user_id, did });
    await eventually(() => held.reached, "the worker is about to write");
    saga.publishing = () => undefined;
    await saga.erase(ADA);
    held.go();
    await saga.settled(30_000);
    await eventually(async () => (await left()).length === 0 || (await left()).join("\n"), "nothing is left");
  },
  60_000,
);
