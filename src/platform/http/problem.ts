import { STATUS_CODES } from "node:http";
import type { ErrorRequestHandler, Response } from "express";
import { AppError, oneLine, PRESENTATION } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { badRequest, Problem } from "../../kernel/problem.js";
import { SECOND } from "../../kernel/time.js";
import { retryAfter } from "./serve.js";

interface ProblemDeps {
  /** Counts a refusal. */
  readonly refused: (status: number) => void;
  readonly log: Logger;
}

/** Answers errors as application/problem+json (RFC 9457). */
export function createProblemHandler({ refused, log }: ProblemDeps): ErrorRequestHandler {
  return (error: unknown, request, response, next) => {
    if (response.headersSent) return next(error);
    const problem = error instanceof Problem ? error : problemOf(error);
    if (problem.status >= 500) {
      const cause = error instanceof AppError && error.cause !== undefined ? oneLine(error.cause) : undefined;
      log.warn({ method: request.method, status: problem.status, error: oneLine(error), cause }, "a request failed");
    }
    refused(problem.status);
    sendProblem(response, problem);
  };
}

function sendProblem(response: Response, { status, message: detail, more }: Problem): void {
  const body = { type: "about:blank", title: STATUS_CODES[status] ?? "Error", status, detail, errors: more.errors };
  response
    .status(status)
    .set({
      ...(status === 401 ? { "WWW-Authenticate": "Bearer" } : {}),
      // The rest of the body is not read.
      ...(status === 408 ? { Connection: "close" } : {}),
      ...(status === 503 ? { "Retry-After": retryAfter() } : {}),
      ...more.headers,
    })
    .type("application/problem+json")
    .send(JSON.stringify(body));
}

/** The log has the texts of servers, the caller does not. */
function problemOf(error: unknown): Problem {
  if (error instanceof AppError) {
    const { httpStatus } = PRESENTATION[error.code];
    const [, field, detail] = /^([\w-]+): (.*)$/s.exec(error.message) ?? [];
    if (httpStatus === 400 && field !== undefined && detail !== undefined) return badRequest([{ field, detail }]);
    if (httpStatus < 500) return new Problem(httpStatus, error.message, { headers: waitOf(error) });
    return new Problem(httpStatus, httpStatus === 503 ? "a server is unavailable: try again later" : FAILED);
  }
  // The router throws this for a path that cannot be decoded.
  const { status } = (error ?? {}) as { readonly status?: unknown };
  return status === 400 ? new Problem(400, "the request is malformed") : new Problem(500, FAILED);
}

const waitOf = ({ retryAfterMs }: AppError): Readonly<Record<string, string>> =>
  retryAfterMs === undefined ? {} : { "Retry-After": String(Math.ceil(retryAfterMs / SECOND)) };

const FAILED = "the request failed; the log says why";
