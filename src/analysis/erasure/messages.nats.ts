import type { NatsConnection } from "nats";
import { naming } from "../../contracts/analysis.js";
import { ANALYSIS_COMPLETED, ANALYSIS_FAILED, ANALYSIS_REQUESTED, CONSUMER, STREAM } from "../../contracts/subjects.js";
import { throwIfStopping } from "../../kernel/errors.js";
import { pause, SECOND } from "../../kernel/time.js";
import { askNats, managerOf } from "../../platform/nats/ask.js";
import { createRemovals } from "../../platform/nats/remove-messages.js";

export type ErasedMessages = ReturnType<typeof createErasedMessages>;

const LOOK_EVERY_MS = SECOND / 4;

/** Everything rejects with AppError `unavailable` while NATS is away. */
export function createErasedMessages(nats: NatsConnection) {
  const removals = createRemovals(nats);
  const isRewarded = (seq: number): Promise<boolean> =>
    askNats(`the consumer ${CONSUMER.rewards}`, async () => {
      const { consumers } = await managerOf(nats);
      const info = await consumers.info(STREAM.timelineEvents, CONSUMER.rewards);
      return info.ack_floor.stream_seq >= seq || info.num_pending + info.num_ack_pending === 0;
    });
  const untilRewarded = async (seq: number, stopping: AbortSignal): Promise<void> => {
    while (!(await isRewarded(seq))) {
      await pause(LOOK_EVERY_MS, stopping);
      throwIfStopping(stopping, "others are rewarded");
    }
  };
  return {
    removeEvent: (seq: number) => removals.remove(STREAM.timelineEvents, seq),
    removeQueued: (user: string, stopping: AbortSignal): Promise<void> => {
      const namedAs = naming(user);
      const queue = { stream: STREAM.timeline, subject: ANALYSIS_REQUESTED };
      return removals.fromQueue({ ...queue, isWanted: ({ body }) => namedAs(body) !== undefined, stopping });
    },
    /** If `rewards` are given here, others get theirs first: an analysis of the user's account earned them. */
    async removeEvents(
      user: string,
      { rewards, stopping }: { rewards: boolean; stopping: AbortSignal },
    ): Promise<void> {
      const namedAs = naming(user);
      const events = { stream: STREAM.timelineEvents, stopping };
      const removeAll = (subject: string) =>
        removals.fromLog({ ...events, subject, isWanted: ({ body }) => namedAs(body) !== undefined });
      await removeAll(ANALYSIS_FAILED);
      let last = 0;
      await removals.fromLog({
        ...events,
        subject: ANALYSIS_COMPLETED,
        isWanted: ({ seq, body }) => {
          const as = namedAs(body);
          if (as === "account") last = seq;
          return as === "user";
        },
      });
      if (last === 0) return;
      if (rewards) await untilRewarded(last, stopping);
      await removeAll(ANALYSIS_COMPLETED);
    },
  };
}
