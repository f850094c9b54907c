import {
  type AnalysisCompleted,
  type AnalysisFailed,
  type AnalysisRequest,
  type AnalysisResults,
  parseRequest,
  requestIn,
  statusPath,
} from "../contracts/analysis.js";
import type { UserNotification } from "../contracts/stream-events.js";
import { ANALYSIS_COMPLETED, ANALYSIS_FAILED, DLQ_HEADER } from "../contracts/subjects.js";
import type { StoreDeadLetter } from "../delivery/dead-letter.js";
import type { Context, Delivery, Handler } from "../delivery/handler.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { sharedNow } from "../kernel/time.js";
import type { AnalysisCache, Erased } from "../state/index.js";
import type { ForgetRequest } from "./erasure/forget.js";
import { observeAnalysis } from "./observe.js";
import type { Requests } from "./requests.nats.js";
import { type CompletedAnalysis, decideFailure, decideStart, type Failure } from "./saga.js";
import type { AnalysisStore } from "./store.sql.js";

export interface WorkerDeps {
  readonly requests: Pick<Requests, "start" | "fail" | "overcome">;
  readonly store: Pick<AnalysisStore, "find" | "insert">;
  readonly cache: AnalysisCache;
  readonly analyse: (request: AnalysisRequest, signal: AbortSignal) => Promise<AnalysisResults>;
  /** Resolves after the PubAck, as `notify`, to the sequence of the event. */
  readonly publish: (subject: string, event: AnalysisCompleted | AnalysisFailed, messageId: string) => Promise<number>;
  readonly notify: (user: string, notification: UserNotification, messageId: string) => Promise<void>;
  readonly erased: Pick<Erased, "among">;
  readonly forget: ForgetRequest;
  readonly removeEvent: (seq: number) => Promise<void>;
  /** Paths that clients are told begin with it. */
  readonly pathPrefix: string;
}

/** Each step may be done again after a crash: the row stands, and what is published again has the same message id. */
export function createAnalysisHandler(deps: WorkerDeps): Handler {
  return async (delivery, context) => {
    const request = parseRequest(delivery.body);
    await unlessErased(deps, request, (guarded) => attempt(guarded, request, { delivery, context }));
  };
}

async function attempt(deps: WorkerDeps, request: AnalysisRequest, { delivery, context }: Message): Promise<void> {
  try {
    await complete(deps, request, { delivery, context });
  } catch (error) {
    const failure = decideFailure(error, context.attempt ?? 1);
    if (failure === undefined) throw error;
    await fail(deps, { request, failure, redrives: redrivesOf(delivery) });
    const { analysis_id } = request;
    context.log.warn({ analysis_id, ...failure, cause: oneLine(error) }, "an analysis failed");
    if (failure.rethrow) throw error;
  }
}

/** The handler cannot tell of a crash: the dead letter does. An erased user gets none. */
export function tellingOfCrashes(deps: WorkerDeps, store: StoreDeadLetter): StoreDeadLetter {
  return async (deadLetter) => {
    const { headers, body } = deadLetter;
    const request = requestIn(body);
    if (!request) return store(deadLetter);
    return unlessErased(deps, request, async (guarded) => {
      if (headers[DLQ_HEADER.reason] === "crashed") {
        const error = "the analysis ended its process each time";
        const spent = Number(headers[DLQ_HEADER.deliveries]);
        const failure = { attempt: spent, final: true, rethrow: false, error, error_code: "crashed" };
        await fail(guarded, { request, failure, redrives: Number(headers[DLQ_HEADER.redriveCount]) });
      }
      await store(deadLetter);
    });
  };
}

/**
 * An erasure may come between a look for its marker and a write. So every write looks for the markers of the user and
 * of the account, and so does the end of the work: either the erasure finds what was written, or this removes it.
 */
async function unlessErased(
  deps: WorkerDeps,
  request: AnalysisRequest,
  work: (guarded: WorkerDeps) => Promise<void>,
): Promise<void> {
  const events: number[] = [];
  const look = async (): Promise<void> => {
    const { size } = await deps.erased.among([request.user_id, request.did]);
    if (size > 0) throw new AppError("gone", "the user or the account of the analysis is erased");
  };
  const looked =
    <Args extends unknown[], Result>(write: (...args: Args) => Promise<Result>) =>
    async (...args: Args): Promise<Result> => {
      await look();
      return write(...args);
    };
  const { requests, cache } = deps;
  const guarded: WorkerDeps = {
    ...deps,
    requests: { start: looked(requests.start), fail: looked(requests.fail), overcome: looked(requests.overcome) },
    cache: { find: cache.find, fill: looked(cache.fill) },
    publish: looked(async (...args) => {
      const seq = await deps.publish(...args);
      events.push(seq);
      return seq;
    }),
    notify: looked(deps.notify),
  };
  try {
    try {
      await work(guarded);
    } finally {
      await look();
    }
  } catch (error) {
    if (codeOf(error) !== "gone") throw error;
    await deps.forget(request);
    await Promise.all(events.map(deps.removeEvent));
  }
}

interface Message {
  readonly delivery: Delivery;
  readonly context: Context;
}

async function complete(deps: WorkerDeps, request: AnalysisRequest, { delivery, context }: Message): Promise<void> {
  const { store, requests } = deps;
  const startedAt = sharedNow();
  await requests.start({ ...request, request_seq: delivery.seq }, startedAt);
  const stored = await store.find(request.user_id, request.analysis_id);
  const start = decideStart(stored, { seq: delivery.seq, redrives: redrivesOf(delivery) });
  if (start === "ignore") return;
  const completed = stored ?? (await insert(deps, request, { delivery, context, startedAt }));
  // An outage right after a final failure was recorded gives its attempt back, also without a redrive.
  await requests.overcome(request);
  await announce(deps, completed);
}

async function insert(
  { cache, analyse, store }: WorkerDeps,
  request: AnalysisRequest,
  { delivery, context, startedAt }: Message & { readonly startedAt: number },
): Promise<CompletedAnalysis> {
  const cached = await cache.find(request, startedAt);
  observeAnalysis.cache(cached !== undefined);
  const results = cached ?? (await analyse(request, context.stopping));
  await failpoint("analysed", delivery.body);
  const row = await store.insert({
    ...request,
    started_at: new Date(startedAt).toISOString(),
    completed_at: new Date(sharedNow()).toISOString(),
    cached: cached !== undefined,
    results,
    request_seq: delivery.seq,
  });
  await failpoint("analysis-stored", delivery.body);
  if (!cached) await cache.fill(request, results, sharedNow());
  await failpoint("analysis-cached", delivery.body);
  observeAnalysis.completed(request, sharedNow());
  return row;
}

async function announce(deps: WorkerDeps, completed: CompletedAnalysis): Promise<void> {
  const { analysis_id, user_id, did, type, tier, cached, completed_at } = completed;
  const event = { event_id: analysis_id, analysis_id, user_id, did, type, tier, cached, completed_at };
  const id = `completed:${analysis_id}`;
  await deps.publish(ANALYSIS_COMPLETED, event, id);
  await failpoint("analysis-published", did);
  const status_url = deps.pathPrefix + statusPath(analysis_id);
  await deps.notify(user_id, { event: "analysis_completed", analysis_id, did, type, status_url }, `notify:${id}`);
}

interface Failed {
  readonly request: AnalysisRequest;
  readonly failure: Failure;
  readonly redrives: number;
}

async function fail(deps: WorkerDeps, { request, failure, redrives }: Failed): Promise<void> {
  const { analysis_id, user_id, did, type } = request;
  const { final, rethrow: _, ...why } = failure;
  const fact = { ...why, redrives, failed_at: new Date(sharedNow()).toISOString() };
  const { attempt, error, error_code } = final ? await deps.requests.fail(request, fact) : fact;
  const id = `failed:${analysis_id}:${redrives}:${attempt}`;
  await deps.publish(ANALYSIS_FAILED, { analysis_id, user_id, did, type, attempt, final, error, error_code }, id);
  await failpoint("analysis-failed", did);
  observeAnalysis.failed(failure);
  if (final) await deps.notify(user_id, { event: "analysis_failed", analysis_id, error_code }, `notify:${id}`);
}

const redrivesOf = ({ headers }: Pick<Delivery, "headers">): number =>
  Number(headers.get(DLQ_HEADER.redriveCount) ?? 0) || 0;
