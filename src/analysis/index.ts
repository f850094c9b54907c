import type { NatsConnection } from "nats";
import { measuresOf } from "../contracts/analysis.js";
import type { StoreDeadLetter } from "../delivery/dead-letter.js";
import type { Process } from "../delivery/handler.js";
import type { Logger } from "../kernel/logger.js";
import { startLoop, warnOnce } from "../kernel/loop.js";
import { HOUR, sharedNow } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import { createBucket } from "../platform/nats/bucket.js";
import type { Publish } from "../platform/nats/publish.js";
import type { State } from "../state/index.js";
import { traceHeaders } from "../telemetry/spans.js";
import { createForget, createForgetRequest } from "./erasure/forget.js";
import { createErasedMessages } from "./erasure/messages.nats.js";
import { createErasedRows } from "./erasure/rows.sql.js";
import { measure } from "./measures.js";
import { observeAnalysis } from "./observe.js";
import { createRequests } from "./requests.nats.js";
import { KEPT_DAYS, MAX_ATTEMPTS } from "./saga.js";
import { keepingSlotsFree } from "./slots.js";
import type { Source } from "./sources/source.js";
import { type AnalysisStore, createAnalysisStore } from "./store.sql.js";
import { createAnalysisHandler, tellingOfCrashes, type WorkerDeps } from "./worker.js";

export { createAnalysisApi } from "./http/index.js";
export { createAnalysisOperations } from "./operations.nats.js";
export { startAnalysisService } from "./service.nats.js";
export { createSources } from "./sources/index.js";

export const ANALYSIS_MIGRATIONS = { component: "analysis", folder: new URL("./migrations/", import.meta.url) };

/** Maximum number of posts of an account that are measured, the newest first. */
const POSTS = 500;

interface WorkerOptions {
  /** Paths that clients are told begin with it. */
  readonly pathPrefix: string;
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly state: Pick<State, "caches" | "streams" | "erased">;
  readonly db: Db;
  readonly sourceOf: (account: string) => Source;
  /** An erasure waits for so long before it removes anything; the default is that of its role. */
  readonly settleMs?: number | undefined;
  readonly log: Logger;
}

/** Starts what analyses accounts, and the removal of old analyses, on a migrated database. */
export function startAnalysisWorker(options: WorkerOptions) {
  const { nats, publish, state, db, sourceOf, pathPrefix, settleMs, log } = options;
  const { caches, streams, erased } = state;
  observeAnalysis.started();
  const store = createAnalysisStore(db);
  const requests = createRequests(createBucket(nats, publish, "ANALYSES"));
  const messages = createErasedMessages(nats);
  const removeKeys = caches.forgetAnalyses;
  const deps: WorkerDeps = {
    requests,
    store,
    cache: caches.analyses,
    analyse: ({ did, type, user_id: user }, signal) => {
      const measures = measuresOf(type);
      return measure(sourceOf(did).posts(did, { user, limit: POSTS, signal }), { measures, now: sharedNow() });
    },
    publish: async (subject, event, id) => {
      const message = { subject, body: Buffer.from(JSON.stringify(event)), id, headers: traceHeaders() };
      return (await publish(message)).seq;
    },
    notify: streams.notifyUser,
    pathPrefix,
    erased,
    forget: createForgetRequest({ erased, requests, removeKeys }),
    removeEvent: messages.removeEvent,
  };
  const retention = startRetention(store, log);
  return {
    handler: createAnalysisHandler(deps),
    maxAttempts: MAX_ATTEMPTS,
    /** @param slots messages that the consumer holds at once */
    process: (slots: number) => (usual: Process) => keepingSlotsFree(slots, usual),
    storeDeadLetter: (usual: StoreDeadLetter) => tellingOfCrashes(deps, usual),
    forget: createForget({ rows: createErasedRows(db), requests, messages, removeKeys, erased, settleMs }),
    close: () => retention.close(),
  };
}

const startRetention = (store: AnalysisStore, log: Logger) =>
  startLoop({
    work: async () => ((await store.removeOlderThan(KEPT_DAYS)) > 0 ? 0 : undefined),
    everyMs: HOUR,
    jitter: true,
    failed: warnOnce(log, "old analyses could not be removed; it is tried again"),
  });
