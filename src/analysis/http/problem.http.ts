import { STATUS_CODES } from "node:http";
import type { ErrorRequestHandler, Response } from "express";
import { AppError, oneLine, PRESENTATION } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { retryAfter } from "../../platform/http/serve.js";
import { observeHttp } from "../observe.js";

/** The field of the body, the query or the headers is wrong. */
interface Fault {
  readonly field: string;
  readonly detail: string;
}

/** A refusal is sent as application/problem+json (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly more: { readonly errors?: readonly Fault[]; readonly headers?: Readonly<Record<string, string>> } = {},
  ) {
    super(detail);
  }
}

export const badRequest = (errors: readonly Fault[]): Problem =>
  new Problem(400, errors.map(({ field, detail }) => `${field}: ${detail}`).join("; "), { errors });

export function createProblemHandler(log: Logger): ErrorRequestHandler {
  return (error: unknown, request, response, next) => {
    if (response.headersSent) return next(error);
    const problem = error instanceof Problem ? error : problemOf(error);
    if (problem.status >= 500) {
      const cause = error instanceof AppError && error.cause !== undefined ? oneLine(error.cause) : undefined;
      log.warn({ method: request.method, status: problem.status, error: oneLine(error), cause }, "a request failed");
    }
    observeHttp.refused(problem.status);
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
      ...(status === 408 || status === 413 ? { Connection: "close" } : {}),
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
    if (httpStatus < 500) return new Problem(httpStatus, error.message);
    return new Problem(httpStatus, httpStatus === 503 ? "a server is unavailable: try again later" : FAILED);
  }
  // The router throws this for a path that cannot be decoded.
  const { status } = (error ?? {}) as { readonly status?: unknown };
  return status === 400 ? new Problem(400, "the request is malformed") : new Problem(500, FAILED);
}

const FAILED = "the request failed; the log says why";
