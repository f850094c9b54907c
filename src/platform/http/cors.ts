import type { IncomingMessage, ServerResponse } from "node:http";

type Headers = Readonly<Record<string, string>>;

/** Tracing in browsers sends these headers of W3C Trace Context; preflights ask for them. */
export const TRACE_CONTEXT = "traceparent, tracestate";

/**
 * Returns headers by which a page of a listed origin may read an answer, and send cookies (Fetch standard, CORS
 * protocol).
 */
export function corsHeaders({ headers }: Pick<IncomingMessage, "headers">, allowed: ReadonlySet<string>): Headers {
  const { origin } = headers;
  if (origin === undefined || !allowed.has(origin)) return { Vary: "Origin" };
  return { Vary: "Origin", "Access-Control-Allow-Origin": origin, "Access-Control-Allow-Credentials": "true" };
}

export const isPreflight = ({ method }: IncomingMessage, cors: Headers): boolean =>
  method === "OPTIONS" && "Access-Control-Allow-Origin" in cors;

/** Answers what a browser asks before it sends a request. */
export function answerPreflight(response: ServerResponse, cors: Headers, { methods, headers }: Allowed): void {
  response.writeHead(204, {
    ...cors,
    "Access-Control-Allow-Methods": methods,
    "Access-Control-Allow-Headers": headers,
    "Access-Control-Max-Age": "600",
  });
  response.end();
}

interface Allowed {
  readonly methods: string;
  readonly headers: string;
}
