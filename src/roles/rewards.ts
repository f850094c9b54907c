import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { startRewards } from "../rewards/index.js";
import { startConsumer, startForgetting } from "./consumers.js";
import type { RunningRole, StoringRoleDeps } from "./role.js";

/** The consumer's max_ack_pending is the same: more messages are not handed out. */
const REWARDED_AT_ONCE = 100;

export async function startRewardsRole(deps: StoringRoleDeps): Promise<RunningRole> {
  const { connections, db, log } = deps;
  const { nats, publish, state } = connections;
  const rewards = startRewards({ db, nats, publish, state, log });
  const consuming = startConsumer(deps, {
    stream: STREAM.timelineEvents,
    consumer: CONSUMER.rewards,
    handler: rewards.reward,
    concurrency: REWARDED_AT_ONCE,
  });
  const forgetting = await startForgetting(deps, "rewards", rewards.forget);
  return {
    notReady: () => {
      if (!consuming.healthy()) return "rewards: completed analyses are not fetched";
      return forgetting.healthy() ? undefined : "rewards: erasures are not fetched";
    },
    close: async (graceMs) =>
      void (await Promise.all([consuming.close(graceMs), forgetting.close(graceMs), rewards.close()])),
  };
}
