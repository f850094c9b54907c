import {
  type ConsumerInfo,
  connect,
  type JetStreamManager,
  type NatsConnection,
  NatsError,
  type StoredMsg,
} from "nats";
import { eventually } from "./eventually.js";

/** A message of a stream as it is stored. */
export type Stored = {
  readonly seq: number;
  readonly subject: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
};

/** The streams of the service, seen from outside. */
export type Streams = {
  readonly connection: NatsConnection;
  readonly manager: JetStreamManager;
  /** Number of messages in a stream; 0 while it does not exist. */
  count(stream: string): Promise<number>;
  /** Everything a stream holds, oldest first. */
  all(stream: string): Promise<Stored[]>;
  /** Messages of the log and of the jobs that no consumer has acknowledged yet. */
  unfinished(): Promise<number>;
  /** Waits until the server answers here: after it was killed that is later than it runs again. */
  answering(): Promise<void>;
  /** Waits until the log holds `events` messages and no consumer has anything left to do. */
  settled(events: number, patienceMs?: number): Promise<void>;
  /** The same where reconciliation may have admitted more than was published: follows of the world, above all. */
  settledWith(atLeast: number, patienceMs?: number): Promise<void>;
  close(): Promise<void>;
};

/** Connects to a nats-server for looking only. */
export async function openStreams(url: string): Promise<Streams> {
  const connection = await connect({
    servers: url,
    maxReconnectAttempts: -1,
    waitOnFirstConnect: true,
    reconnectTimeWait: 100,
    // A greeting that a killed server began is not waited for.
    timeout: 1_000,
  });
  const manager = await connection.jetstreamManager({ checkAPI: false });
  return {
    connection,
    manager,
    count: (stream) => count(manager, stream),
    all: (stream) => all(manager, stream),
    unfinished: () => unfinished(manager),
    answering: () =>
      eventually(
        () =>
          connection.flush().then(
            () => true,
            (error: unknown) => String(error),
          ),
        "NATS answers the test",
      ),
    settled: (events, patienceMs) =>
      eventually(
        () => unanswered(backlog(manager, (admitted) => admitted === events)),
        `${events} events admitted and done`,
        patienceMs,
      ),
    settledWith: (events, patienceMs) =>
      eventually(
        () => unanswered(backlog(manager, (admitted) => admitted >= events)),
        `${events} events or more admitted and done`,
        patienceMs,
      ),
    close: () => connection.close(),
  };
}

async function count(manager: JetStreamManager, stream: string): Promise<number> {
  return (await orMissing(manager.streams.info(stream)))?.state.messages ?? 0;
}

const READ_AT_ONCE = 100;

async function all(manager: JetStreamManager, stream: string): Promise<Stored[]> {
  const info = await orMissing(manager.streams.info(stream));
  // Of an empty stream 2.9 names sequences that cannot be asked for.
  if (info === undefined || info.state.messages === 0) return [];
  const found: Stored[] = [];
  for (let from = info.state.first_seq; from <= info.state.last_seq; from += READ_AT_ONCE) {
    const count = Math.min(READ_AT_ONCE, info.state.last_seq - from + 1);
    const reads = Array.from({ length: count }, (_, offset) =>
      orMissing(manager.streams.getMessage(stream, { seq: from + offset })),
    );
    for (const message of await Promise.all(reads)) if (message !== undefined) found.push(toStored(message));
  }
  return found;
}

function toStored(message: StoredMsg): Stored {
  const headers: Record<string, string> = {};
  for (const name of message.header.keys()) headers[name] = message.header.get(name);
  return { seq: message.seq, subject: message.subject, headers, body: Buffer.from(message.data) };
}

/** A server that is unavailable answers nothing; that is a state to wait through. */
async function unanswered<T>(question: Promise<T>): Promise<T | string> {
  try {
    return await question;
  } catch (error) {
    if (error instanceof NatsError && ["TIMEOUT", "503", "DISCONNECT"].includes(error.code))
      return `NATS: ${error.code}`;
    throw error;
  }
}

/** The log first and the jobs after it: a planner acknowledges only once its jobs are stored. */
async function backlog(manager: JetStreamManager, enough: (admitted: number) => boolean): Promise<true | string> {
  const admitted = await count(manager, "DROPS");
  if (!enough(admitted)) return `${admitted} events admitted`;
  for (const stream of ["DROPS", "FANOUT"]) {
    const consumers = await consumersOf(manager, stream);
    if (consumers === undefined) return `${stream} has no consumer`;
    const busy = consumers.find((consumer) => consumer.num_pending + consumer.num_ack_pending > 0);
    if (busy !== undefined)
      return `${stream}.${busy.name}: ${busy.num_pending} waiting, ${busy.num_ack_pending} in work`;
  }
  return true;
}

async function unfinished(manager: JetStreamManager): Promise<number> {
  const consumers = await Promise.all(["DROPS", "FANOUT"].map((stream) => consumersOf(manager, stream)));
  return consumers.flatMap((some) => some ?? []).reduce((sum, one) => sum + one.num_pending + one.num_ack_pending, 0);
}

/** Most tests have no role notifications, from whose consumer of the log nobody pulls then. */
const isUnused = ({ name, num_waiting, num_ack_pending }: ConsumerInfo): boolean =>
  name === "notifications" && num_waiting === 0 && num_ack_pending === 0;

/**
 * Those that do work; undefined where there are none yet. A process that was killed while it read the log leaves a
 * consumer without a durable name. A server lists a consumer it is setting up as null.
 */
async function consumersOf(manager: JetStreamManager, stream: string): Promise<ConsumerInfo[] | undefined> {
  const found: (ConsumerInfo | null)[] = [];
  try {
    for await (const consumer of manager.consumers.list(stream)) found.push(consumer);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
  const known = found.filter((consumer) => consumer !== null);
  const working = known.filter((consumer) => consumer.config.durable_name !== undefined && !isUnused(consumer));
  return working.length > 0 && known.length === found.length ? working : undefined;
}

async function orMissing<T>(request: Promise<T>): Promise<T | undefined> {
  try {
    return await request;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof NatsError && (error.api_error?.code === 404 || error.code === "404");
}
