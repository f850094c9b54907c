import type { NatsConnection } from "nats";
import { parseJob } from "../contracts/jobs.js";
import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { readLog } from "../platform/nats/read-log.js";
import { createStoredMessages } from "../platform/nats/stored.js";
import type { ReadBacklogStart, ReadStretch } from "./ports.js";

/** Reads a stretch of `DROPS`. */
export function createReadStretch(nats: NatsConnection): ReadStretch {
  return ({ from, to }, take) =>
    readLog(nats, { stream: STREAM.drops, subject: ">", from, until: to }, (entry) =>
      take({ stream: STREAM.drops, consumer: "replay", deliveries: 1, ...entry }),
    );
}

/**
 * Finds the oldest event that a consumer of the log still has to finish, or
 * that stands behind a job on the work queue. Where there is none it is now.
 */
export function createReadBacklogStart(nats: NatsConnection): ReadBacklogStart {
  return async () => {
    const now = Date.now();
    try {
      const consumers = [CONSUMER.planner, CONSUMER.graph];
      const starts = await Promise.all(consumers.map((consumer) => unfinishedSince(nats, consumer, now)));
      // After the planner, who acknowledges an event only once its jobs are stored: in between none is overlooked.
      return Math.min(...starts, await queuedSince(nats, now));
    } catch (error) {
      throw new AppError("unavailable", `NATS: ${oneLine(error)}`, { cause: error });
    }
  };
}

async function unfinishedSince(nats: NatsConnection, consumer: string, now: number): Promise<number> {
  const manager = await nats.jetstreamManager({ checkAPI: false });
  const { num_pending, num_ack_pending, ack_floor } = await manager.consumers.info(STREAM.drops, consumer);
  if (num_pending + num_ack_pending === 0) return now;
  const next = await createStoredMessages(nats).read(STREAM.drops, ack_floor.stream_seq + 1);
  // What is gone has aged out; everything still there is younger.
  return Math.min(next?.time ?? Date.parse((await manager.streams.info(STREAM.drops)).state.first_ts), now);
}

/** A job says when its event was admitted; jobs are queued in about that order. */
async function queuedSince(nats: NatsConnection, now: number): Promise<number> {
  const manager = await nats.jetstreamManager({ checkAPI: false });
  const { state } = await manager.streams.info(STREAM.fanout);
  const first = state.messages > 0 ? await createStoredMessages(nats).read(STREAM.fanout, state.first_seq) : undefined;
  return first ? Math.min(parseJob(first.body).admitted_at, now) : now;
}
