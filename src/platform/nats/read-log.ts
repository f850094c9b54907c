import { AckPolicy, DeliverPolicy, millis, type NatsConnection, nanos } from "nats";
import { AppError } from "../../kernel/errors.js";
import { HOUR } from "../../kernel/time.js";
import { natsError } from "./ask.js";
import { headersOf, type StoredMessage } from "./message.js";

export interface LogRange {
  readonly stream: string;
  readonly subject: string;
  /** The stream stored it at this time, in ms since the epoch; `until` is exclusive. */
  readonly from?: number | undefined;
  readonly until?: number | undefined;
  /** Used only if `from` is unset. */
  readonly after?: number | undefined;
  readonly headersOnly?: boolean | undefined;
  /** Number of messages fetched at a time. Default: 1,000. */
  readonly batch?: number | undefined;
  /** The server forgets the place of a reader that fetched nothing for so long; the default is an hour. */
  readonly keptMs?: number | undefined;
}

export type LogEntry = Omit<StoredMessage, "stream">;

const BATCH = 1_000;

/**
 * Messages that arrive meanwhile may be left out. @throws AppError `unavailable` if the server stops answering, or a
 * connection that was cut took messages along
 */
export async function* logEntries(connection: NatsConnection, range: LogRange): AsyncGenerator<LogEntry> {
  const { until = Number.POSITIVE_INFINITY } = range;
  try {
    for await (const entry of storedEntries(connection, range)) {
      if (entry.time >= until) return;
      yield entry;
    }
  } catch (error) {
    throw natsError(`reading ${range.stream}`, error);
  }
}

async function* storedEntries(connection: NatsConnection, range: LogRange): AsyncGenerator<LogEntry> {
  const manager = await connection.jetstreamManager();
  const created = await manager.consumers.add(range.stream, {
    ack_policy: AckPolicy.None,
    filter_subject: range.subject,
    inactive_threshold: nanos(range.keptMs ?? HOUR),
    ...(range.headersOnly ? { headers_only: true } : {}),
    ...startOf(range),
  });
  try {
    const source = await connection.jetstream().consumers.get(range.stream, created.name);
    const lost = () => new AppError("unavailable", `messages of ${range.stream} were lost on their way here`);
    let received = 0;
    for (let remaining = created.num_pending; remaining > 0; ) {
      const before = remaining;
      const batch = await source.fetch({ max_messages: Math.min(remaining, range.batch ?? BATCH), expires: 5_000 });
      for await (const message of batch) {
        remaining--;
        const { streamSequence: seq, deliverySequence, timestampNanos } = message.info;
        // Nothing is acknowledged, so the server sends nothing again.
        if (deliverySequence !== ++received) throw lost();
        const { subject, data: body } = message;
        yield { subject, seq, time: millis(timestampNanos), headers: headersOf(message), body };
      }
      if (remaining < before) continue;
      const { num_pending, delivered } = await source.info();
      if (num_pending > 0) throw new AppError("unavailable", `the log ${range.stream} stopped answering`);
      if (delivered.consumer_seq > received) throw lost();
      return;
    }
  } finally {
    await manager.consumers.delete(range.stream, created.name).catch(() => undefined);
  }
}

function startOf({ from, after }: LogRange) {
  if (from !== undefined)
    return { deliver_policy: DeliverPolicy.StartTime, opt_start_time: new Date(from).toISOString() };
  if (after !== undefined) return { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: after + 1 };
  return { deliver_policy: DeliverPolicy.All };
}
