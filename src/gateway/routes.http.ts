import { STATUS_CODES } from "node:http";
import { type Request, type Response, Router } from "express";
import type { Headers } from "../delivery/handler.js";
import { AppError, codeOf, oneLine, PRESENTATION } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { openSse, type SseLimits, type SseStream } from "../platform/http/sse.js";
import { type Authenticate, findCredentials, originAllowed, type Principal, unauthenticated } from "./auth.js";
import { observeGateway } from "./observe.js";

export interface StreamRequest {
  readonly principal: Principal;
  readonly lastEventId: string | undefined;
  /** Aborts when the client goes away before its stream is open. */
  readonly gone: AbortSignal;
  open(first: string): SseStream;
}

interface RouteDeps {
  readonly authenticate: Authenticate;
  readonly allowedOrigins: ReadonlySet<string>;
  readonly limits: SseLimits;
  readonly log: Logger;
  serve(request: StreamRequest): Promise<void>;
}

const TRACE_HEADERS = ["traceparent", "tracestate", "baggage"];

const SSE_PATH = "/events/timeline/home";

class ForeignOrigin extends Error {}

export function createRoutes(deps: RouteDeps): Router {
  const router = Router();
  router.all(SSE_PATH, async (request, response) => {
    const cors = corsHeaders(request.headers.origin, deps.allowedOrigins);
    response.set(cors);
    if (request.method === "OPTIONS" && "Access-Control-Allow-Origin" in cors) return preflight(response);
    if (request.method !== "GET") return sendProblem(response.set("Allow", "GET"), 405);
    try {
      await openStream(deps, request, response);
    } catch (error) {
      refuse(deps.log, response, error);
    }
  });
  return router;
}

async function openStream(deps: RouteDeps, request: Request, response: Response): Promise<void> {
  const credentials = findCredentials(request.headers);
  if (!credentials) throw unauthenticated("missing");
  const principal = await deps.authenticate(credentials.token);
  if (credentials.method === "cookie" && !originAllowed(request.headers, deps.allowedOrigins))
    throw new ForeignOrigin();
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  await observeGateway.opening(traceOf(request), () =>
    deps.serve({
      principal,
      lastEventId: request.get("last-event-id"),
      gone: gone.signal,
      open: (first) => openSse(request, response, deps.limits, first),
    }),
  );
}

function traceOf(request: Request): Headers {
  const get = (name: string): string | undefined => request.get(name);
  return { get, entries: () => TRACE_HEADERS.map((name) => [name, get(name) ?? ""] as const) };
}

function corsHeaders(origin: string | undefined, allowed: ReadonlySet<string>): Record<string, string> {
  if (origin === undefined || !allowed.has(origin)) return { Vary: "Origin" };
  return { Vary: "Origin", "Access-Control-Allow-Origin": origin, "Access-Control-Allow-Credentials": "true" };
}

function preflight(response: Response): void {
  response
    .set({
      "Access-Control-Allow-Methods": "GET",
      "Access-Control-Allow-Headers": "authorization, last-event-id, cache-control",
      "Access-Control-Max-Age": "600",
    })
    .status(204)
    .end();
}

function refuse(log: Logger, response: Response, error: unknown): void {
  if (response.headersSent || response.destroyed) return;
  if (error instanceof ForeignOrigin) return sendProblem(response, 403);
  const status = PRESENTATION[codeOf(error)].httpStatus;
  const cause = error instanceof AppError && error.cause !== undefined ? oneLine(error.cause) : undefined;
  if (status >= 500) log.warn({ status, error: oneLine(error), cause }, "an event stream was not opened");
  else log.info({ status }, "an event stream was refused");
  if (status === 401) response.set("WWW-Authenticate", "Bearer");
  if (status === 429 || status === 503) response.set("Retry-After", String(1 + Math.floor(Math.random() * 5)));
  sendProblem(response, status);
}

/** Without a detail: the client is unknown (RFC 9457). */
function sendProblem(response: Response, status: number): void {
  observeGateway.refused(status);
  const body = JSON.stringify({ type: "about:blank", title: STATUS_CODES[status] ?? "Error", status });
  response.status(status).set("Cache-Control", "no-store").type("application/problem+json").send(body);
}
