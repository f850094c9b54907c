import { randomUUID } from "node:crypto";
import type { ConsumerInfo, JetStreamManager, NatsConnection, StreamInfo } from "nats";
import { messageId, parseStored, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import { admittedSince, CONSUMER, JOB_SUBJECTS, SILENT_HEADER, STREAM } from "../contracts/subjects.js";
import type { Delivery } from "../delivery/handler.js";
import { codeOf } from "../kernel/errors.js";
import { sharedNow } from "../kernel/time.js";
import { askNats, managerOf, unlessAbsent } from "../platform/nats/ask.js";
import { createStoredMessages } from "../platform/nats/message.js";
import type { Publish } from "../platform/nats/publish.js";
import { type LogEntry, type LogRange, logEntries } from "../platform/nats/read-log.js";
import type { Backlog, LogState, WaitingEvent } from "../state/index.js";
import { inSpan, SpanKind, traceHeaders } from "../telemetry/spans.js";
import { Looks } from "./looks.js";
import type { Admit, Logged, TimeRange } from "./reconcile/reconcile.js";
import type { Unapplied } from "./redis-loss/loss-detector.js";
import type { ReadRange } from "./replay.js";

export const GRAPH_SUBJECTS = "graph.*";

/** The stream `DROPS`, and the jobs made from its events. */
export class EventLog {
  /** `readWaiting` lists the events that wait for a single user. Default: none. */
  constructor(
    private readonly nats: NatsConnection,
    private readonly readWaiting: () => Promise<readonly WaitingEvent[]> = async () => [],
    private readonly looks = new Looks(),
  ) {}

  /** Reads a range. A reader may pause for `keptMs` without losing its position; the default is an hour. */
  readonly readRange = (range: Parameters<ReadRange>[0], keptMs?: number) => deliveriesOf(this.nats, range, keptMs);

  readonly readLogged = (range: TimeRange, subject = ">"): AsyncIterable<Logged> =>
    loggedOf(this.nats, [subject], range);

  readonly readErasures = (): AsyncIterable<Logged> => loggedOf(this.nats, [SUBJECT_OF.user_erased]);

  /** Reads all deletions and changes of edges. */
  readonly readHistory = (): AsyncIterable<Logged> => loggedOf(this.nats, [SUBJECT_OF.drop_deleted, GRAPH_SUBJECTS]);

  /**
   * Resolves to the time of the last drop or deletion, or of the last follow or unfollow, whichever is older: an outbox
   * may publish those of one kind, even while no bridge runs. If the log never had an event, it is the creation of a log
   * that is older than this process: an earlier bridge may have ended before it stored the first ones. A younger log has
   * missed nothing.
   */
  readonly readLastAdmission = async (): Promise<number | undefined> => {
    const { streams } = await managerOf(this.nats);
    const lastOf = (last_by_subj: string) =>
      unlessAbsent(streams.getMessage(STREAM.drops, { last_by_subj }), "message");
    const last = await Promise.all(["drops.*", GRAPH_SUBJECTS].map(lastOf));
    const times = last.flatMap((message) => message?.time.getTime() ?? []);
    if (times.length > 0) return Math.min(...times);
    const { state, created } = await streams.info(STREAM.drops);
    if (state.last_seq > 0) return Date.parse(state.last_ts);
    const createdAt = Date.parse(created);
    return createdAt < sharedNow() - performance.now() ? createdAt : undefined;
  };

  readonly readLogState = (): Promise<LogState> =>
    askNats("looking at the log", async () => {
      const [drops, fanout] = await Promise.all([infoOf(this.nats, STREAM.drops), infoOf(this.nats, STREAM.fanout)]);
      return {
        drops: drops?.created ?? "",
        last: drops?.state.last_seq ?? 0,
        fanout: fanout?.created ?? "",
        lastJob: fanout?.state.last_seq ?? 0,
        redis: redisIn(drops),
      };
    });

  /** Resolves to the name of the Redis that the log belongs to. */
  readonly readRedis = (): Promise<string | undefined> =>
    askNats("reading whose the log is", async () => redisIn(await infoOf(this.nats, STREAM.drops)));

  /**
   * Writes the name of a Redis into the description of the stream, unless it has one. The name is lost, saved and
   * restored with the log, and all roles may read it.
   */
  readonly bindRedis = (redis: string): Promise<void> =>
    askNats("writing whose the log is", async () => {
      const { streams } = await managerOf(this.nats);
      const info = await streams.info(STREAM.drops);
      if (redisIn(info) !== undefined) return;
      const description = `${info.config.description ?? ""}; of the Redis ${redis}`;
      await streams.update(STREAM.drops, { ...info.config, description });
    });

  /** Resolves to true while processes of the role fanout pull from the log, whichever Redis they use. */
  readonly isAtWork = (): Promise<boolean> =>
    askNats("looking for processes at work", async () => {
      const { consumers } = await managerOf(this.nats);
      const infos = PULLED_FROM.map(([stream, consumer]) =>
        unlessAbsent(consumers.info(stream, consumer), "stream", "consumer"),
      );
      // When it is asked, the server forgets the pulls of a connection that has ended.
      return (await Promise.all(infos)).some((info) => (info?.num_waiting ?? 0) > 0);
    });

  /** Finds the oldest event that a consumer of the log, or a job, still has to apply. */
  readonly readBacklog = async (): Promise<Backlog> => {
    const { start, acked } = await unappliedOf(this.nats, async () => [], new Looks());
    return { start, acked };
  };

  /**
   * Reads the same, apart from the events that wait for a single user. While there are any, read it again for some
   * minutes.
   */
  readonly readUnapplied = (): Promise<Unapplied> => unappliedOf(this.nats, this.readWaiting, this.looks);
}

async function* deliveriesOf(
  nats: NatsConnection,
  { since, until, after }: Parameters<ReadRange>[0],
  keptMs: number | undefined,
): AsyncGenerator<Delivery> {
  const from = after === undefined ? since : undefined;
  for await (const entry of entriesOf(nats, { subject: ">", from, after, until, keptMs }))
    yield { stream: STREAM.drops, consumer: "replay", deliveries: 1, ...entry };
}

/** Yields the events of the log, without those that break the contract. */
async function* loggedOf(
  nats: NatsConnection,
  subjects: readonly string[],
  { since: from, until }: Partial<TimeRange> = {},
): AsyncGenerator<Logged> {
  for (const subject of subjects) {
    for await (const entry of entriesOf(nats, { subject, from, until })) {
      const event = eventOf(entry);
      if (event) yield { event, seq: entry.seq, time: entry.time };
    }
  }
}

/** Returns undefined for an event that breaks the contract: its consumer dead-letters it. */
export function eventOf({
  subject,
  body,
  time,
}: Pick<LogEntry, "subject" | "body" | "time">): TimelineEvent | undefined {
  try {
    return parseStored(subject, body, time);
  } catch (error) {
    if (codeOf(error) === "invalid") return undefined;
    throw error;
  }
}

export const entriesOf = (nats: NatsConnection, range: Omit<LogRange, "stream">): AsyncIterable<LogEntry> =>
  logEntries(nats, { stream: STREAM.drops, ...range });

/** Returns the message that the log stores of an event. */
export const storedOf = ({ name, payload }: TimelineEvent) => ({
  subject: SUBJECT_OF[name],
  body: Buffer.from(JSON.stringify(payload)),
});

export function createAdmit(publish: Publish): Admit {
  return (event, silent) =>
    inSpan(`reconcile ${event.name}`, { kind: SpanKind.PRODUCER }, async () => {
      await publish({
        ...storedOf(event),
        id: messageId(event),
        headers: { ...traceHeaders(), ...(silent ? { [SILENT_HEADER]: "1" } : {}) },
      });
    });
}

/** Admits an event again, silently. It gets a new id, since NATS may still know its old one. */
export function createReadmit(publish: Publish): (event: Pick<Delivery, "subject" | "body">) => Promise<number> {
  return async ({ subject, body }) => {
    const { seq } = await publish({ subject, id: `again:${randomUUID()}`, body, headers: { [SILENT_HEADER]: "1" } });
    return seq;
  };
}

const infoOf = async (nats: NatsConnection, stream: string): Promise<StreamInfo | undefined> =>
  unlessAbsent((await managerOf(nats)).streams.info(stream), "stream");

const REDIS = /; of the Redis ([0-9a-f-]{36})$/;

const redisIn = (drops: StreamInfo | undefined): string | undefined => REDIS.exec(drops?.config.description ?? "")?.[1];

/**
 * Consumers from which processes at work pull. A process that fills all its slots of one consumer pulls from another.
 */
const PULLED_FROM = [
  [STREAM.drops, CONSUMER.planner],
  [STREAM.drops, CONSUMER.graph],
  [STREAM.fanout, CONSUMER.worker],
  [STREAM.fanout, CONSUMER.rest],
  [STREAM.advisories, CONSUMER.backstop],
] as const;

function unappliedOf(
  nats: NatsConnection,
  readWaiting: () => Promise<readonly WaitingEvent[]>,
  looks: Looks,
): Promise<Unapplied> {
  return askNats("reading the backlog", async () => {
    const now = sharedNow();
    const manager = await managerOf(nats);
    const { state } = await manager.streams.info(STREAM.drops);
    const consumers = [CONSUMER.planner, CONSUMER.graph].map(async (consumer) => {
      const info = await manager.consumers.info(STREAM.drops, consumer);
      // The list is read after the consumer, so that an event that is begun again meanwhile counts as not applied.
      const noted = (await readWaiting()).filter((event) => isOf(info, event));
      const { acked, waiting } = looks.add(info, noted);
      if (info.num_pending === 0 && info.num_ack_pending === noted.length)
        return { start: now, acked: state.last_seq, waiting };
      const next = await createStoredMessages(nats).read(STREAM.drops, acked + 1);
      // A message that is gone has aged out; all that remain are younger.
      return { start: next?.time ?? Date.parse(state.first_ts), acked, waiting };
    });
    const positions = await Promise.all(consumers);
    // Jobs are read after the planner, which acks an event only once its jobs are stored: none is missed in between.
    const queued = await oldestJob(manager);
    return {
      start: Math.min(now, queued, ...positions.map(({ start }) => start)),
      acked: Math.min(...positions.map(({ acked }) => acked)),
      waiting: positions.flatMap(({ waiting }) => waiting),
    };
  });
}

/** Returns false for an event that is applied, or was noted for an earlier consumer of this name. */
const isOf = (
  { name, created, ack_floor, delivered }: ConsumerInfo,
  { consumer, seq, at: notedAt }: WaitingEvent,
): boolean =>
  consumer === name && seq > ack_floor.stream_seq && seq <= delivered.stream_seq && notedAt >= Date.parse(created);

const JOB_CONSUMERS = [CONSUMER.worker, CONSUMER.hotGraph, CONSUMER.rest];

/**
 * Returns the time of the oldest job. Jobs are in no order, and redriven ones come after younger ones, but subjects
 * hold the time of admission.
 */
async function oldestJob(manager: JetStreamManager): Promise<number> {
  const { state } = await manager.streams.info(STREAM.fanout, { subjects_filter: JOB_SUBJECTS });
  const stored = Object.keys(state.subjects ?? {});
  if (stored.length === 0) return Number.POSITIVE_INFINITY;
  // A server that was killed may still hold jobs that were acked: docs/gotchas.md.
  const open = (await Promise.all(JOB_CONSUMERS.map((consumer) => prefixesLeftTo(manager, consumer)))).flat();
  const unacked = stored.filter((subject) => open.some((prefix) => subject.startsWith(prefix)));
  return unacked.reduce((oldest, subject) => Math.min(oldest, admittedSince(subject)), Number.POSITIVE_INFINITY);
}

/** Returns the subject prefix of a consumer, or none if it is done with all of its messages. */
async function prefixesLeftTo(manager: JetStreamManager, consumer: string): Promise<string[]> {
  const { config, num_pending, num_ack_pending } = await manager.consumers.info(STREAM.fanout, consumer);
  const { filter_subject: filter = ">" } = config;
  return num_pending + num_ack_pending > 0 ? [filter.slice(0, -1)] : [];
}
