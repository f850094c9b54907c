import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import { EVENT_STREAMS, streamPath } from "../contracts/stream-events.js";
import type { PagedTimeline } from "../contracts/timeline-pages.js";
import { AppError, codeOf, oneLine, PRESENTATION } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { type Range, randomMs, SECOND } from "../kernel/time.js";
import { answerPreflight, corsHeaders, isPreflight, TRACE_CONTEXT } from "../platform/http/cors.js";
import type { Handle } from "../platform/http/serve.js";
import { acceptsEventStream, refuseForNow, SendTurn, type SseLimits, SseStream } from "../platform/http/sse.js";
import type { Authorize, Principal } from "./auth.js";
import { traceOf } from "./notification.js";
import { observeGateway } from "./observe.js";

export interface StreamRequest {
  readonly principal: Principal;
  readonly timeline: PagedTimeline;
  /** Name of the list; "" for another timeline. */
  readonly list: string;
  /** The id is undefined for a stream that resumes nothing. */
  readonly lastEventId: string | undefined;
  /** The header names the span that opens the stream. */
  readonly traceparent: string | undefined;
  isGone(): boolean;
  open(first: string, closed: () => void): SseStream;
}

interface RouteDeps {
  readonly authorize: Authorize;
  readonly allowedOrigins: ReadonlySet<string>;
  readonly limits: SseLimits & { readonly retryMs: Range };
  readonly log: Logger;
  serve(request: StreamRequest): Promise<void>;
}

const LAST_EVENT_ID = "last_event_id";

const PREFLIGHT = { methods: "GET", headers: `authorization, last-event-id, cache-control, ${TRACE_CONTEXT}` };

const NAMES = Object.keys(EVENT_STREAMS).join("|").replace("{id}", "([^/?]+)");
/** A server must also take the absolute form (RFC 9112, 3.2.2). */
const SSE_PATH = new RegExp(`^(?:https?://[^/?]+)?${streamPath(`(${NAMES})`)}/?(?:\\?|$)`, "i");

export function createRoutes(deps: RouteDeps): Handle {
  const turn = new SendTurn();
  return (request, response) => {
    const [, name, list = ""] = SSE_PATH.exec(request.url ?? "") ?? [];
    if (name === undefined) return false;
    const headers = corsHeaders(request, deps.allowedOrigins);
    // Pipelined behind an answer that is not over: a stream writes to the socket itself, and so into that answer.
    if (response.socket === null) request.socket.destroy();
    else if (isPreflight(request, headers)) answerPreflight(response, headers, PREFLIGHT);
    else if (request.method !== "GET") sendProblem(response, { status: 405 }, { ...headers, Allow: "GET" });
    else {
      const timeline = list === "" ? (name.toLowerCase() as PagedTimeline) : "list";
      const exchange = { request, response, timeline, list, headers, turn };
      openStream(deps, exchange).catch((error) => refuse(deps, error, exchange));
    }
    return true;
  };
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly timeline: PagedTimeline;
  readonly list: string;
  /** Every answer has these headers. */
  readonly headers: Readonly<Record<string, string>>;
  readonly turn: SendTurn;
}

async function openStream(deps: RouteDeps, exchange: Exchange): Promise<void> {
  const { request, response, timeline, list, headers, turn } = exchange;
  const principal = await deps.authorize(request.headers);
  const trace = traceOf((name) => request.headers[name]?.toString());
  const span = observeGateway.opening(trace);
  try {
    await deps.serve({
      principal,
      timeline,
      list,
      lastEventId: lastEventIdOf(request),
      traceparent: span.headers["traceparent"],
      isGone: () => response.destroyed,
      open: (first, closed) => new SseStream(request, response, deps.limits, { turn, headers, first, closed }),
    });
    span.end();
  } catch (error) {
    span.end(error as Error);
    throw error;
  }
}

/** A polyfill of EventSource that starts anew cannot set the header, so the query may have the id. The header wins. */
function lastEventIdOf({ headers, url = "" }: IncomingMessage): string | undefined {
  const [, query = ""] = url.split("?", 2);
  return headers["last-event-id"]?.toString() || new URLSearchParams(query).get(LAST_EVENT_ID) || undefined;
}

function refuse({ limits, log }: RouteDeps, error: unknown, { request, response, headers }: Exchange): void {
  if (response.headersSent || response.destroyed) return;
  const status = PRESENTATION[codeOf(error)].httpStatus;
  const cause = error instanceof AppError && error.cause !== undefined ? oneLine(error.cause) : undefined;
  if (status >= 500) log.warn({ status, error: oneLine(error), cause }, "an event stream was not opened");
  else log.info({ status }, "an event stream was refused");
  const isKnown = error instanceof AppError;
  const retryMs = (isKnown ? error.retryAfterMs : undefined) ?? randomMs(limits.retryMs);
  if (PASSING.includes(status) && acceptsEventStream(request)) {
    observeGateway.refused(status);
    return refuseForNow(response, { headers, retryMs, why: isKnown ? error.publicMessage : "the request failed" });
  }
  const more = {
    ...headers,
    ...(status === 401 ? { "WWW-Authenticate": "Bearer" } : {}),
    ...(PASSING.includes(status) ? { "Retry-After": String(Math.ceil(retryMs / SECOND)) } : {}),
  };
  // A client that is unknown gets no reason, nor does anybody get the text of a server.
  const hasDetail = isKnown && status !== 401 && status < 500;
  sendProblem(response, { status, detail: hasDetail ? error.publicMessage : undefined }, more);
}

/** Statuses of refusals that are not the client's fault: a later request may succeed. */
const PASSING = [429, 500, 503, 504];

/** An undefined `detail` is left out (RFC 9457). */
function sendProblem(
  response: ServerResponse,
  { status, detail }: { readonly status: number; readonly detail?: string | undefined },
  headers: Record<string, string>,
): void {
  observeGateway.refused(status);
  const body = JSON.stringify({ type: "about:blank", title: STATUS_CODES[status] ?? "Error", status, detail });
  const kind = { "Content-Type": "application/problem+json; charset=utf-8", "Content-Length": Buffer.byteLength(body) };
  response.writeHead(status, { ...headers, ...kind, "Cache-Control": "no-store" });
  response.end(body);
}
