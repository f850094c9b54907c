import type { Problem } from "./gen/schemas.js";

interface Details {
  readonly status?: number | undefined;
  readonly problem?: Problem | undefined;
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** A call or a stream failed. */
export class TimelineError extends Error {
  override readonly name = "TimelineError";
  /** The HTTP status; undefined if no answer came, or if a stream broke. */
  readonly status: number | undefined;
  /** The body of the answer, if it is a problem (RFC 9457); `errors` names every wrong field. */
  readonly problem: Problem | undefined;
  /** Time after which the server lets the client try again, ms. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, { status, problem, retryAfterMs, cause }: Details = {}) {
    super(message, { cause });
    this.status = status;
    this.problem = problem;
    this.retryAfterMs = retryAfterMs;
  }

  /** The same request fails again, whenever it is sent. */
  get isFinal(): boolean {
    const { status = 0 } = this;
    return status >= 400 && status < 500 && !PASSING.has(status);
  }
}

/** Statuses from 400 to 499 of a request that may succeed later. */
const PASSING = new Set([408, 425, 429]);
const SECOND = 1_000;

/** Reads a refusal. */
export async function errorOf(response: Response): Promise<TimelineError> {
  const { status, headers } = response;
  const problem = await problemOf(response);
  const seconds = Number(headers.get("retry-after") ?? Number.NaN);
  return new TimelineError(problem?.detail ?? problem?.title ?? `the server answered ${status}`, {
    status,
    problem,
    retryAfterMs: seconds >= 0 ? seconds * SECOND : undefined,
  });
}

async function problemOf(response: Response): Promise<Problem | undefined> {
  const isProblem = /^application\/problem\+json\b/i.test(response.headers.get("content-type") ?? "");
  if (!isProblem) return undefined;
  return (await response.json().catch(() => undefined)) as Problem | undefined;
}

export const asError = (error: unknown): TimelineError =>
  error instanceof TimelineError ? error : new TimelineError(`no answer: ${String(error)}`, { cause: error });
