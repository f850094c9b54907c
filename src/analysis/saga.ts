import type { AnalysisRequest, AnalysisResults } from "../contracts/analysis.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import { AccountGone } from "./sources/source.js";

/** NATS keeps the facts for so long (nats/streams/KV_ANALYSES.json), and the database the rows. */
export const KEPT_DAYS = 30;

/** Times are RFC 3339. */
export interface RequestFact extends AnalysisRequest {
  readonly estimated_completion?: string | undefined;
  /** Sequence of the request's message in TIMELINE. */
  readonly request_seq?: number | undefined;
}

export interface FailedFact {
  readonly failed_at: string;
  readonly error: string;
  readonly error_code: string;
  readonly attempt: number;
  /** The dead letter of the request was redriven so often. */
  readonly redrives?: number;
  /** A later attempt completed the request. */
  readonly overcome?: true;
}

export interface Facts {
  readonly request: RequestFact;
  readonly startedAt?: string | undefined;
  readonly failed?: FailedFact | undefined;
  /** NATS gave it up: its message left the queue, and later nothing told of its end. */
  readonly abandoned?: boolean | undefined;
}

/** A row of timeline_analyses means that the analysis is completed. */
export interface CompletedAnalysis extends AnalysisRequest {
  readonly started_at: string;
  readonly completed_at: string;
  readonly cached: boolean;
  readonly results: AnalysisResults;
  /** Sequence in TIMELINE of the message that completed the analysis. */
  readonly request_seq: number;
}

export type Status = "queued" | "processing" | "completed" | "failed";

/** A failed analysis that is redriven stays failed until it is completed, and nothing follows a completion. */
export function statusOf({ startedAt, abandoned, failed }: Facts, completed: CompletedAnalysis | undefined): Status {
  if (completed !== undefined) return "completed";
  if (failed !== undefined || abandoned) return "failed";
  return startedAt === undefined ? "queued" : "processing";
}

/** A worker notes the start first: without a start there is no row. */
export const mayBeCompleted = ({ startedAt, failed }: Facts): boolean =>
  startedAt !== undefined || failed !== undefined;

interface RequestMessage {
  readonly seq: number;
  /** Number of times that its dead letters were redriven. */
  readonly redrives: number;
}

/** `announce` only publishes the events. With `ignore` another message of the same request does all. */
export function decideStart(
  completed: Pick<CompletedAnalysis, "request_seq"> | undefined,
  { seq, redrives }: RequestMessage,
): "analyse" | "announce" | "ignore" {
  if (completed === undefined) return "analyse";
  return completed.request_seq === seq || redrives > 0 ? "announce" : "ignore";
}

export const MAX_ATTEMPTS = 3;

export interface Failure {
  readonly attempt: number;
  readonly final: boolean;
  /** The message is left to the failure policy, which retries or dead-letters it. */
  readonly rethrow: boolean;
  readonly error: string;
  readonly error_code: string;
}

/** A source may say anything: its own words are for the log. */
const GONE = {
  account_unknown: "there is no such account",
  account_suspended: "the account is suspended, deactivated or taken down",
} as const satisfies Record<AccountGone["code"], string>;

/** Returns undefined for an outage, which spends no attempt, and for an erased user. `attempt` counts this one. */
export function decideFailure(error: unknown, attempt: number): Failure | undefined {
  if (error instanceof AccountGone)
    return { attempt, final: true, rethrow: false, error: GONE[error.code], error_code: error.code };
  const code = codeOf(error);
  if (code === "unavailable" || code === "gone") return undefined;
  const final = attempt >= MAX_ATTEMPTS || code === "invalid" || code === "poison";
  const known = error instanceof AppError;
  return {
    attempt,
    final,
    rethrow: true,
    // Errors that are not ours may hold data of ours.
    error: known ? oneLine(error.publicMessage) : "the analysis failed",
    error_code: known ? "source_failed" : "internal",
  };
}

const ABANDONED = "the analysis was given up";

/** Fields that are undefined are left out of the JSON. */
export function viewOf(facts: Facts, completed: CompletedAnalysis | undefined) {
  const { request, startedAt, failed } = facts;
  const { analysis_id, did, type, requested_at, estimated_completion } = request;
  const status = statusOf(facts, completed);
  return {
    analysis_id,
    did,
    type,
    status,
    requested_at,
    estimated_completion,
    started_at: completed?.started_at ?? startedAt,
    ...(completed && { completed_at: completed.completed_at, cached: completed.cached, results: completed.results }),
    ...(status === "failed" && { error: failed?.error ?? ABANDONED }),
  };
}
