import { status } from "@grpc/grpc-js";
import type { ErrorRequestHandler } from "express";

const TITLES = { 400: "Invalid request", 404: "Not found", 502: "Timeline unavailable", 500: "Internal error" };

/** An answer of application/problem+json (RFC 9457); `field` is the one at fault. */
export class Problem extends Error {
  constructor(
    readonly status: keyof typeof TITLES,
    detail: string,
    readonly field?: string,
    options?: ErrorOptions,
  ) {
    super(field === undefined ? detail : `${field}: ${detail}`, options);
  }
}

export const invalid = (field: string, fault: string): Problem => new Problem(400, fault, field);

/** Only refusals show their own text. `onError` is called with every failure that is not the caller's fault. */
export function createProblemHandler(onError: (error: unknown) => void): ErrorRequestHandler {
  return (error: unknown, _request, response, next) => {
    const problem = error instanceof Problem ? error : problemOf(error);
    if (problem.status >= 500) onError(problem.cause);
    if (response.headersSent) return next(error);
    const { status, message: detail, field } = problem;
    const body = { type: "about:blank", status, title: TITLES[status], detail, field };
    response.status(status).type("application/problem+json").send(JSON.stringify(body));
  };
}

/** With these codes the text of a service is meant for its caller. */
const REFUSALS: ReadonlySet<unknown> = new Set([
  status.INVALID_ARGUMENT,
  status.RESOURCE_EXHAUSTED,
  status.FAILED_PRECONDITION,
]);

function problemOf(cause: unknown): Problem {
  const { code, details, status } = (cause ?? {}) as { code?: unknown; details?: unknown; status?: unknown };
  if (REFUSALS.has(code) && typeof details === "string") {
    const [, field, fault] = /^([\w.]+): (.*)$/s.exec(details) ?? [];
    return new Problem(400, fault ?? details, field);
  }
  // express.json throws these.
  if (status === 413) return invalid("body", "is too large");
  if (typeof status === "number" && status >= 400 && status < 500) return invalid("body", "is not valid JSON");
  return new Problem(500, "the request failed; the log says why", undefined, { cause });
}
