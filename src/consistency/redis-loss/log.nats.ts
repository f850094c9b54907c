import type { JetStreamManager, NatsConnection, StreamInfo } from "nats";
import { admittedSince, CONSUMER, JOB_SUBJECTS, STREAM } from "../../contracts/subjects.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { unlessAbsent } from "../../platform/nats/ask.js";
import { readLog } from "../../platform/nats/read-log.js";
import { createStoredMessages } from "../../platform/nats/stored.js";
import type { ReadBacklog, ReadLogMark, ReadStretch } from "./ports.js";

/** Reads a stretch of `DROPS`. */
export function createReadStretch(nats: NatsConnection): ReadStretch {
  return ({ from, to }, take) =>
    readLog(nats, { stream: STREAM.drops, subject: ">", from, until: to }, (entry) =>
      take({ stream: STREAM.drops, consumer: "replay", deliveries: 1, ...entry }),
    );
}

/** Looks when the streams of events and jobs were created, and how far the log goes. */
export function createReadLogMark(nats: NatsConnection): ReadLogMark {
  const infoOf = async (stream: string): Promise<StreamInfo | undefined> => {
    const manager = await nats.jetstreamManager({ checkAPI: false });
    return unlessAbsent(manager.streams.info(stream), "stream");
  };
  return () =>
    asking(async () => {
      const [drops, fanout] = await Promise.all([infoOf(STREAM.drops), infoOf(STREAM.fanout)]);
      return { drops: drops?.created ?? "", fanout: fanout?.created ?? "", last: drops?.state.last_seq ?? 0 };
    });
}

/**
 * Finds the oldest event that a consumer of the log still has to finish, or
 * that stands behind a job on the work queue. Where there is none it is now.
 */
export function createReadBacklog(nats: NatsConnection): ReadBacklog {
  return () =>
    asking(async () => {
      const now = Date.now();
      const manager = await nats.jetstreamManager({ checkAPI: false });
      const { state } = await manager.streams.info(STREAM.drops);
      const consumers = [CONSUMER.planner, CONSUMER.graph].map(async (consumer) => {
        const { num_pending, num_ack_pending, ack_floor } = await manager.consumers.info(STREAM.drops, consumer);
        if (num_pending + num_ack_pending === 0) return { start: now, acked: state.last_seq };
        const next = await createStoredMessages(nats).read(STREAM.drops, ack_floor.stream_seq + 1);
        // What is gone has aged out; everything still there is younger.
        return { start: next?.time ?? Date.parse(state.first_ts), acked: ack_floor.stream_seq };
      });
      const found = await Promise.all(consumers);
      // After the planner, who acknowledges an event only once its jobs are stored: in between none is overlooked.
      const queued = await queuedSince(manager);
      return {
        start: Math.min(now, queued, ...found.map(({ start }) => start)),
        acked: Math.min(...found.map(({ acked }) => acked)),
      };
    });
}

/** The same, for callers that need only the time. */
export function createReadBacklogStart(nats: NatsConnection): () => Promise<number> {
  const readBacklog = createReadBacklog(nats);
  return async () => (await readBacklog()).start;
}

/** Jobs are queued in any order, and redriven ones behind younger ones: their subjects say when their events were admitted. */
async function queuedSince(manager: JetStreamManager): Promise<number> {
  const { state } = await manager.streams.info(STREAM.fanout, { subjects_filter: JOB_SUBJECTS });
  return Math.min(...Object.keys(state.subjects ?? {}).map(admittedSince));
}

async function asking<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    throw new AppError("unavailable", `NATS: ${oneLine(error)}`, { cause: error });
  }
}
