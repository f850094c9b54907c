import { AckPolicy, DeliverPolicy, millis, type NatsConnection, nanos } from "nats";
import { AppError, oneLine } from "../../kernel/errors.js";
import { MINUTE } from "../../kernel/time.js";

/** What to read of a stream. */
export interface LogRange {
  readonly stream: string;
  readonly subject: string;
  /** From when the stream stored it, in ms since the epoch; undefined: from the beginning. */
  readonly from?: number | undefined;
}

/** One stored message. */
export interface LogEntry {
  readonly subject: string;
  readonly seq: number;
  /** When the stream stored it, in ms since the epoch. */
  readonly time: number;
  readonly body: Uint8Array;
}

const BATCH = 1_000;

/**
 * Reads what a stream holds at the time of the call, oldest first, in batches;
 * what arrives meanwhile may or may not be among it.
 *
 * @throws AppError `unavailable` where the server stops answering in between.
 */
export async function readLog(
  connection: NatsConnection,
  range: LogRange,
  take: (entry: LogEntry) => Promise<void> | void,
): Promise<void> {
  try {
    await read(connection, range, take);
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError("unavailable", `the log ${range.stream} could not be read: ${oneLine(error)}`, { cause: error });
  }
}

async function read(
  connection: NatsConnection,
  range: LogRange,
  take: (entry: LogEntry) => Promise<void> | void,
): Promise<void> {
  const manager = await connection.jetstreamManager();
  const created = await manager.consumers.add(range.stream, {
    ack_policy: AckPolicy.None,
    filter_subject: range.subject,
    inactive_threshold: nanos(MINUTE),
    ...(range.from === undefined
      ? { deliver_policy: DeliverPolicy.All }
      : { deliver_policy: DeliverPolicy.StartTime, opt_start_time: new Date(range.from).toISOString() }),
  });
  try {
    const source = await connection.jetstream().consumers.get(range.stream, created.name);
    for (let left = created.num_pending; left > 0; ) {
      const before = left;
      const batch = await source.fetch({ max_messages: Math.min(left, BATCH), expires: 5_000 });
      for await (const message of batch) {
        left--;
        const { streamSequence: seq, timestampNanos } = message.info;
        await take({ subject: message.subject, seq, time: millis(timestampNanos), body: message.data });
      }
      if (left === before && (await source.info()).num_pending > 0) {
        throw new AppError("unavailable", `the log ${range.stream} stopped answering`);
      }
      // Messages that aged out meanwhile never come.
      if (left === before) return;
    }
  } finally {
    await manager.consumers.delete(range.stream, created.name).catch(() => undefined);
  }
}
