import type { ErrorRequestHandler, Response } from "express";

type WorldErrorCode = "invalid" | "unknown" | "conflict";

/** A refused request; it names the field at fault, as the wire calls it. */
export class WorldError extends Error {
  override readonly name = "WorldError";

  constructor(
    readonly code: WorldErrorCode,
    readonly field: string,
    fault: string,
  ) {
    super(`${field}: ${fault}`);
  }
}

export const invalid = (field: string, fault: string): WorldError => new WorldError("invalid", field, fault);

interface Problem {
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly field?: string;
}

const STATUS: Record<WorldErrorCode, { readonly status: number; readonly title: string }> = {
  invalid: { status: 400, title: "Invalid request" },
  unknown: { status: 404, title: "Not found" },
  conflict: { status: 409, title: "Conflict" },
};

/** Answers with application/problem+json (RFC 9457). */
export function sendProblem(response: Response, problem: Problem): void {
  response
    .status(problem.status)
    .type("application/problem+json")
    .send(JSON.stringify({ type: "about:blank", ...problem }));
}

/** Answers the error of a route as a problem; only refusals show their own text. */
export function createProblemHandler(onError: (error: unknown) => void): ErrorRequestHandler {
  return (error: unknown, _request, response, next) => {
    const problem = toProblem(error);
    if (problem.status >= 500) onError(error);
    if (response.headersSent) next(error);
    else sendProblem(response, problem);
  };
}

function toProblem(error: unknown): Problem {
  const refusal = refusalOf(error);
  if (refusal !== undefined) return refusal;
  if (error instanceof WorldError) return { ...STATUS[error.code], detail: error.message, field: error.field };
  // express.json throws these for a body that is no JSON, or too large.
  const status = (error as { status?: unknown } | undefined)?.status;
  if (status === 413) return { status, title: "Invalid request", detail: "body is too large", field: "body" };
  if (typeof status === "number" && status >= 400 && status < 500) {
    return { status, title: "Invalid request", detail: "body is not valid JSON", field: "body" };
  }
  return { status: 500, title: "Internal error", detail: "the request failed; the log says why" };
}

/** INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION: the caller may read why a service refused. */
const REFUSALS: ReadonlySet<unknown> = new Set([3, 8, 9]);

function refusalOf(error: unknown): Problem | undefined {
  const { code, details } = (error ?? {}) as { code?: unknown; details?: unknown };
  if (!REFUSALS.has(code) || typeof details !== "string") return undefined;
  const field = /^([\w.]+): /.exec(details)?.[1];
  return { ...STATUS.invalid, detail: details, ...(field === undefined ? {} : { field }) };
}
