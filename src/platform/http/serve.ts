import { createServer, type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import { type AddressInfo, Server as ListeningServer } from "node:net";
import express, { type ErrorRequestHandler, type Router } from "express";
import { AppError, oneLine, PRESENTATION } from "../../kernel/errors.js";
import { createFailureLog, type Logger } from "../../kernel/logger.js";
import { SECOND } from "../../kernel/time.js";

export interface HttpOptions {
  readonly address: string;
  readonly keepAliveMs?: number | undefined;
  /** Unset: there is no /readyz. */
  readonly notReady?: () => readonly string[];
  /** Unset: there is no /metrics. */
  readonly metrics?: (request: IncomingMessage, response: ServerResponse) => void;
  readonly log: Logger;
}

/** Answers the request, now or later; returns false if it is for others. */
export type Handle = (request: IncomingMessage, response: ServerResponse) => boolean;

export type HttpServer = Awaited<ReturnType<typeof serveHttp>>;

/** Proxies keep idle connections for 60 s, which is shorter: one that we close meets the request it is used for. */
const KEEP_ALIVE_MS = 75 * SECOND;
const HEADERS_MS = 80 * SECOND;
/** A body takes at most this long to come. */
export const BODY_MS = 10 * SECOND;

export async function serveHttp(options: HttpOptions) {
  const { notReady, metrics } = options;
  const app = express().disable("x-powered-by").disable("etag");
  app.get("/healthz", (_request, response) => void response.json({ status: "ok" }));
  if (notReady)
    app.get("/readyz", (_request, response) => {
      const waiting = notReady();
      response
        .status(waiting.length === 0 ? 200 : 503)
        .json({ status: waiting.length === 0 ? "ready" : "waiting", waiting });
    });
  if (metrics) app.get("/metrics", (request, response) => metrics(request, response));
  const roles = express.Router();
  app.use(roles);
  let isComplete = false;
  app.use(() => {
    if (!isComplete) throw new AppError("unavailable", "the service is starting");
    throw new AppError("notfound", "no such resource");
  });
  app.use(errorHandler(options.log));
  const handles: Handle[] = [];
  let isListening = true;
  const timeouts = { keepAliveTimeout: options.keepAliveMs ?? KEEP_ALIVE_MS, headersTimeout: HEADERS_MS };
  const server = createServer(timeouts, (request, response) => {
    if (!isListening) response.shouldKeepAlive = false;
    endWithBody(request, response);
    if (!handles.some((handle) => handle(request, response))) app(request, response);
  });
  const { host, port } = parseAddress(options.address);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    // Without a host the server takes IPv6 too, if the machine has it.
    server.listen(port, host === "0.0.0.0" ? undefined : host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    /** Goes before all routers, and holds nothing of theirs. */
    handle: (handle: Handle): void => void handles.push(handle),
    use: (router: Router): void => void roles.use(router),
    /** Says that all routers are there. Until then a path may be one of theirs: the answer is 503, not 404. */
    complete: (): void => {
      isComplete = true;
    },
    /** Refuses new connections; those that are open get answers that end them. */
    stopListening: (): void => {
      isListening = false;
      // The server's own `close` ends idle connections, too: a request may be on its way there.
      ListeningServer.prototype.close.call(server);
    },
    /** Refuses new connections, and waits up to `graceMs` for the open ones. */
    close: (graceMs: number) =>
      new Promise<void>((resolve) => {
        const force = setTimeout(() => server.closeAllConnections(), graceMs);
        server.close(() => {
          clearTimeout(force);
          resolve();
        });
        server.closeIdleConnections();
      }),
  };
}

/** Ends a connection whose request is answered and whose body does not end: Node waits for minutes. */
function endWithBody(request: IncomingMessage, response: ServerResponse): void {
  const { "content-length": length, "transfer-encoding": encoding } = request.headers;
  if (length === undefined && encoding === undefined) return;
  response.once("finish", () => {
    if (request.complete) return;
    const late = setTimeout(() => request.complete || request.socket.destroy(), BODY_MS).unref();
    request.once("end", () => clearTimeout(late));
    request.once("close", () => clearTimeout(late));
  });
}

function parseAddress(address: string): { host: string; port: number } {
  const colon = address.lastIndexOf(":");
  return { host: address.slice(0, colon).replace(/^\[|\]$/g, ""), port: Number(address.slice(colon + 1)) };
}

/** The header is in seconds, and jittered, so that clients refused together do not return together. */
export const retryAfter = (): string => String(1 + Math.floor(Math.random() * 5));

function problem(response: ServerResponse, status: number, detail: string): void {
  response.writeHead(status, {
    "Content-Type": "application/problem+json",
    ...(status === 503 ? { "Retry-After": retryAfter() } : {}),
  });
  response.end(JSON.stringify({ type: "about:blank", title: STATUS_CODES[status] ?? "Error", status, detail }));
}

function errorHandler(log: Logger): ErrorRequestHandler {
  const logFailure = createFailureLog(log, "a request failed");
  return (error: unknown, request, response, next) => {
    if (response.headersSent) return next(error);
    if (error instanceof AppError) {
      const { code, message, publicMessage } = error;
      if (publicMessage !== message) logFailure(code, { path: request.path, error: oneLine(error) });
      return problem(response, PRESENTATION[code].httpStatus, publicMessage);
    }
    const { status, stack } = error as { readonly status?: number; readonly stack?: string };
    // Express rejects a path or a body that cannot be read.
    if (status === 400 || status === 413) return problem(response, status, STATUS_CODES[status] as string);
    log.error({ path: request.path, error: oneLine(error), stack }, "a request failed");
    problem(response, 500, "internal error");
  };
}
