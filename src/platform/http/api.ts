import { type Request, type RequestHandler, type Response, Router } from "express";
import type { z } from "zod";
import { faultInWords, storedIdFault } from "../../kernel/fields.js";
import type { Logger } from "../../kernel/logger.js";
import { badRequest, Problem } from "../../kernel/problem.js";
import { contextOf, inSpan, SpanKind } from "../../telemetry/spans.js";
import { answerPreflight, corsHeaders, isPreflight, TRACE_CONTEXT } from "./cors.js";
import { createProblemHandler } from "./problem.js";

export interface Caller {
  readonly user: string;
  /** The claim of the token is unchecked. */
  readonly tier?: unknown;
}

export interface ApiDeps {
  /** @throws AppError `unauthenticated`, `forbidden`, `unavailable` */
  readonly authorize: (headers: Request["headers"]) => Promise<Caller>;
  /** Pages of these origins may read the answers, and send cookies. */
  readonly allowedOrigins: ReadonlySet<string>;
  /** @throws AppError `gone` if the user is erased */
  readonly refuseCaller: (user: string) => Promise<void>;
  /** Resolves to the seconds until the user may read at this cost; 0: now. */
  readonly takeRead: (user: string, cost: number) => Promise<number>;
  /** Counts a refusal. */
  readonly refused: (status: number) => void;
  readonly log: Logger;
}

/** Answers a request of a caller who is known, with JSON; it may set headers of the response. */
type Answer = (caller: Caller, request: Request<{ id: string }>, response: Response) => Promise<unknown>;

export type Api = ReturnType<typeof createApi>;

const PREFLIGHT = {
  methods: "GET, HEAD, POST",
  headers: `authorization, content-type, idempotency-key, cache-control, ${TRACE_CONTEXT}`,
};
/** A page may read the other headers anyway. */
const READABLE = "Link, Location, Retry-After, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, RateLimit-Policy";

/** Routes of callers with a token. `complete` is called once all routes are there. */
export function createApi({ authorize, allowedOrigins, refuseCaller, takeRead, refused, log }: ApiDeps) {
  const router = Router();
  router.use((request, response, next) => {
    const cors = corsHeaders(request, allowedOrigins);
    if (isPreflight(request, cors)) return answerPreflight(response, cors, PREFLIGHT);
    response.set(cors).set("Access-Control-Expose-Headers", READABLE);
    next();
  });
  /** Finds out who calls: see {@link callerOf}. */
  const known: RequestHandler = async (request, response, next) => {
    response.set("Cache-Control", "no-store");
    const { user, tier } = await authorize(request.headers);
    const fault = storedIdFault(user);
    if (fault !== undefined) throw badRequest([{ field: "sub", detail: `of the access token ${fault}` }]);
    await refuseCaller(user);
    response.locals["caller"] = { user, tier } satisfies Caller;
    next();
  };
  /** @throws Problem 429 */
  const read = async ({ user }: Caller, cost: number): Promise<void> => {
    const seconds = await takeRead(user, cost);
    if (seconds > 0) throw new Problem(429, "too many reads at once", { headers: { "Retry-After": String(seconds) } });
  };
  return {
    router,
    known,
    read,
    get(path: string, answer: Answer, cost = 1): void {
      router
        .route(path)
        .get(known, async (request, response) => {
          await read(callerOf(response), cost);
          const work = () => answer(callerOf(response), request as Request<{ id: string }>, response);
          response.json(await inRequest(request, path, work));
        })
        .all(allowOnly("GET, HEAD"));
    },
    complete(): Router {
      return router.use(createProblemHandler({ refused, log }));
    },
  };
}

export const callerOf = (response: Response): Caller => response.locals["caller"] as Caller;

/** Continues the client's trace. */
export function inRequest<T>(request: Request, path: string, work: () => Promise<T>): Promise<T> {
  const headers = { get: (name: string) => request.get(name), entries: () => Object.entries(request.headers) };
  const parent = contextOf(headers as Parameters<typeof contextOf>[0]);
  return inSpan(`${request.method} ${path}`, { kind: SpanKind.SERVER, parent }, work);
}

export const allowOnly =
  (methods: string): RequestHandler =>
  (request) => {
    throw new Problem(405, `${request.method} is not allowed here`, { headers: { Allow: methods } });
  };

/** @throws Problem 400, naming every wrong field, or `whole` */
export function understood<Schema extends z.ZodType>(schema: Schema, value: unknown, whole: string): z.output<Schema> {
  const parsed = schema.safeParse(value, { error: faultInWords });
  if (parsed.success) return parsed.data;
  const { issues } = parsed.error;
  throw badRequest(issues.map(({ path, message }) => ({ field: path.join(".") || whole, detail: message })));
}
