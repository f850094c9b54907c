import type { NatsConnection } from "nats";
import { type AnalysisRequest, requestIn } from "../contracts/analysis.js";
import { ANALYSIS_REQUESTED, CONSUMER, DLQ_HEADER, STREAM, WORK_EVENTS } from "../contracts/subjects.js";
import type { UnfinishedAnalysis } from "../contracts/tables.js";
import { AppError } from "../kernel/errors.js";
import { decodeId, isUuid } from "../kernel/ids.js";
import { firstOf } from "../kernel/paging.js";
import { askNats, managerOf, unlessAbsent } from "../platform/nats/ask.js";
import { createBucket } from "../platform/nats/bucket.js";
import { createStoredMessages, type StoredMessage } from "../platform/nats/message.js";
import type { Publish } from "../platform/nats/publish.js";
import { createRequests, type Requests } from "./requests.nats.js";
import { type Facts, KEPT_DAYS, type RequestFact, type Status, statusOf } from "./saga.js";

interface Shown extends AnalysisRequest {
  readonly status: Status;
  readonly started_at: string | null;
  readonly failed_at: string | null;
  readonly error_code: string | null;
  readonly error: string | null;
  readonly stream: string | null;
  readonly stream_seq: number | null;
}

const DEAD_LETTERS = `dlq.*.${WORK_EVENTS[STREAM.timeline]}`;

/** Everything rejects with AppError `unavailable` while NATS is unavailable. */
export function createAnalysisOperations({
  nats,
  publish,
}: {
  readonly nats: NatsConnection;
  readonly publish: Publish;
}) {
  const requests = createRequests(createBucket(nats, publish, "ANALYSES"));
  const messages = createStoredMessages(nats);
  const deadLetters = () => messages.each(STREAM.dlq, DEAD_LETTERS, 1);
  async function* list(): AsyncGenerator<UnfinishedAnalysis> {
    const from = (await ackedUpTo(nats)) + 1;
    for await (const message of messages.each(STREAM.timeline, ANALYSIS_REQUESTED, from))
      yield waitingOf(message, requests);
    for await (const message of deadLetters()) yield deadLetterOf(message);
  }
  const waiting = async ({ analysis_id, request_seq: seq = 0 }: RequestFact): Promise<StoredMessage | undefined> => {
    const message = seq > (await ackedUpTo(nats)) ? await messages.read(STREAM.timeline, seq) : undefined;
    // A stream that was created again holds another one there.
    return message && isOf(message, analysis_id) ? message : undefined;
  };
  const deadLetter = async (id: string): Promise<StoredMessage | undefined> => {
    for await (const message of deadLetters()) if (isOf(message, id)) return message;
    return undefined;
  };
  return {
    list,
    /** Cut to a number of rows, and to a size as JSON. */
    first: (limit: number, maxBytes?: number) => firstOf(list(), limit, maxBytes),
    /** @throws AppError `notfound` */
    show: async (id: string): Promise<Shown> => {
      const facts = await factsOf(id, requests);
      const message = await waiting(facts.request);
      if (message) return shown(facts, message);
      const dead = await deadLetter(id);
      // A worker writes how it ended before its message leaves the queue.
      return shown(await factsOf(id, requests), dead);
    },
  };
}

const isOf = ({ body }: StoredMessage, id: string): boolean => requestIn(body)?.analysis_id === id;

/** A work queue holds what is not acked; a server that was killed may still hold what was (docs/gotchas.md). */
const ackedUpTo = (nats: NatsConnection): Promise<number> =>
  askNats(`the consumer ${CONSUMER.analysis}`, async () => {
    const { consumers } = await managerOf(nats);
    const info = await unlessAbsent(consumers.info(STREAM.timeline, CONSUMER.analysis), "consumer", "stream");
    return info?.ack_floor.stream_seq ?? 0;
  });

async function factsOf(id: string, requests: Requests): Promise<Facts> {
  const [token] = isUuid(id) ? await requests.userTokensOf(id) : [];
  const facts = token === undefined ? undefined : await requests.find(decodeId(token), id);
  if (!facts) throw new AppError("notfound", `no such analysis is known; they are kept for ${KEPT_DAYS} days`);
  return facts;
}

async function waitingOf({ body, time, seq }: StoredMessage, requests: Requests): Promise<UnfinishedAnalysis> {
  const request = requestIn(body);
  const facts = request && (await requests.find(request.user_id, request.analysis_id));
  const since = facts?.startedAt ?? request?.requested_at ?? new Date(time).toISOString();
  const status = facts?.startedAt === undefined ? "queued" : "processing";
  return { ...named(request), status, since, stream: STREAM.timeline, stream_seq: seq, reason: null, error: null };
}

function deadLetterOf({ body, time, seq, headers }: StoredMessage): UnfinishedAnalysis {
  const since = headers.get(DLQ_HEADER.failedAt) ?? new Date(time).toISOString();
  const why = { reason: headers.get(DLQ_HEADER.reason) ?? null, error: headers.get(DLQ_HEADER.error) ?? null };
  return { ...named(requestIn(body)), status: "failed", since, stream: STREAM.dlq, stream_seq: seq, ...why };
}

function named(request: AnalysisRequest | undefined) {
  const { analysis_id = null, user_id = null, did = null, type = null, tier = null } = request ?? {};
  return { analysis_id, user_id, did, type, tier };
}

/** Operators ask no database: what neither waits nor failed is completed. */
function statusFor(facts: Facts, message: StoredMessage | undefined): Status {
  if (facts.failed?.overcome || !(facts.failed || message)) return "completed";
  return statusOf({ ...facts, abandoned: message?.stream === STREAM.dlq }, undefined);
}

function shown(facts: Facts, message: StoredMessage | undefined): Shown {
  const { request, startedAt, failed } = facts;
  const status = statusFor(facts, message);
  const { analysis_id, user_id, did, type, tier, requested_at } = request;
  const { failed_at = null, error_code = null, error = null } = status === "completed" ? {} : (failed ?? {});
  return {
    analysis_id,
    user_id,
    did,
    type,
    tier,
    status,
    requested_at,
    started_at: startedAt ?? null,
    failed_at,
    error_code,
    error,
    stream: message?.stream ?? null,
    stream_seq: message?.seq ?? null,
  };
}
