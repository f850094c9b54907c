import type { Router } from "express";
import type { NatsConnection } from "nats";
import { ANALYSIS_REQUESTED, CONSUMER, STREAM } from "../../contracts/subjects.js";
import { AppError } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import type { Db } from "../../platform/db/db.js";
import { managerOf } from "../../platform/nats/ask.js";
import { createBucket } from "../../platform/nats/bucket.js";
import { createStoredMessages } from "../../platform/nats/message.js";
import type { Publish } from "../../platform/nats/publish.js";
import { refuseErased, type State } from "../../state/index.js";
import { traceHeaders } from "../../telemetry/spans.js";
import { createForgetRequest } from "../erasure/forget.js";
import { observeHttp } from "../observe.js";
import { createRequests } from "../requests.nats.js";
import { createIsUser, type PostReads, type UserReads } from "../sources/posts.grpc.js";
import { createAnalysisStore } from "../store.sql.js";
import { createAsk } from "./ask.js";
import { createErasedRefusals } from "./erased.redis.js";
import { createEstimate } from "./estimate.js";
import { createIdempotencyKeys } from "./idempotency.nats.js";
import { createReads, type Rewards } from "./read.js";
import { createAnalysisRouter, type RouteDeps } from "./routes.http.js";

interface AnalysisApiDeps {
  readonly authorize: RouteDeps["authorize"];
  readonly allowedOrigins: readonly string[];
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly connected: () => boolean;
  readonly state: Pick<State, "caches" | "limits" | "erased">;
  readonly upstreams: (PostReads & UserReads) | undefined;
  readonly db: Db | undefined;
  readonly rewards: Rewards | undefined;
  /** The process serves pages of timelines beside these routes. */
  readonly servesTimelines: boolean;
  /** And notifications. */
  readonly servesNotifications: boolean;
  readonly pathPrefix: string;
  readonly channelPrefix: string;
  readonly log: Logger;
}

/** Makes the routes beside SSE: analyses, rewards, and their OpenAPI document. */
export function createAnalysisApi({ state, upstreams, db, rewards, log, ...deps }: AnalysisApiDeps): Router {
  observeHttp.started();
  const bucket = createBucket(deps.nats, deps.publish, "ANALYSES");
  const requests = createRequests(bucket);
  const { caches, limits, erased } = state;
  const forget = createForgetRequest({ erased, requests, removeKeys: caches.forgetAnalyses });
  const refusals = createErasedRefusals({ erased, forget });
  const ask = createAsk({
    erased: refusals,
    keys: createIdempotencyKeys(bucket),
    limit: limits.analyses,
    estimate: createEstimate(() => lookAtQueue(deps.nats)),
    record: requests.record,
    publish: async (request) => {
      const body = Buffer.from(JSON.stringify(request));
      const message = { subject: ANALYSIS_REQUESTED, body, id: request.analysis_id, stream: STREAM.timeline };
      return (await deps.publish({ ...message, headers: traceHeaders() })).seq;
    },
  });
  // The client of NATS waits for its timeout if it has no connection.
  const ifConnected =
    <Args extends unknown[], Result>(work: (...args: Args) => Promise<Result>) =>
    async (...args: Args): Promise<Result> => {
      if (!deps.connected()) throw new AppError("unavailable", "NATS is unavailable");
      return work(...args);
    };
  const store = db && createAnalysisStore(db);
  const messages = createStoredMessages(deps.nats);
  const reads = createReads({
    requests: { find: ifConnected(requests.find), listed: ifConnected(requests.listed) },
    isQueued: async (seq) => (await messages.read(STREAM.timeline, seq)) !== undefined,
    store,
    rewards,
  });
  const allowedOrigins = new Set(deps.allowedOrigins);
  const isUser = upstreams && createIsUser(upstreams, upstreams);
  const { authorize, servesTimelines, servesNotifications, pathPrefix, channelPrefix } = deps;
  const served = { servesTimelines, servesNotifications, pathPrefix, channelPrefix };
  const callers = { authorize, allowedOrigins, refuseCaller: refuseErased(erased), takeRead: limits.takeRead };
  return createAnalysisRouter({ ...callers, ...served, ask: ifConnected(ask), isUser, reads, log });
}

async function lookAtQueue(nats: NatsConnection) {
  const { consumers } = await managerOf(nats);
  const { num_pending, num_ack_pending, delivered } = await consumers.info(STREAM.timeline, CONSUMER.analysis);
  return { waiting: num_pending + num_ack_pending, done: delivered.stream_seq - num_ack_pending };
}
