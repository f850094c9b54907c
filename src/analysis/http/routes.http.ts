import { type Request, type RequestHandler, type Response, Router } from "express";
import type { z } from "zod";
import {
  ANALYSIS_ORDER,
  KNOWN_ORDER,
  looksLikeHandle,
  statusPath,
  type UserTier,
  userTierOf,
} from "../../contracts/analysis.js";
import { contextOf, inSpan, SpanKind } from "../../delivery/telemetry.js";
import { faultInWords, storedIdFault } from "../../kernel/fields.js";
import type { Logger } from "../../kernel/logger.js";
import { answerPreflight, corsHeaders, isPreflight, TRACE_CONTEXT } from "../../platform/http/cors.js";
import { observeHttp } from "../observe.js";
import type { Ask } from "./ask.js";
import { readJson } from "./body.http.js";
import { readIdempotencyKey } from "./idempotency.nats.js";
import { openApi } from "./openapi.js";
import { badRequest, createProblemHandler, Problem } from "./problem.http.js";
import { quotaHeaders, type RateLimit } from "./rate-limit.redis.js";
import type { Reads } from "./read.js";
import { PAGE } from "./schemas.js";

export interface RouteDeps {
  /** Finds the caller. @throws AppError `unauthenticated`, `forbidden`, `unavailable` */
  readonly authorize: (headers: Request["headers"]) => Promise<{ readonly user: string; readonly tier?: unknown }>;
  /** Pages of these origins may read the answers, and send cookies. */
  readonly allowedOrigins: ReadonlySet<string>;
  readonly ask: Ask;
  /** Resolves to whether this is a user of ours; undefined where the upstreams are not configured. */
  readonly isUser: ((id: string) => Promise<boolean>) | undefined;
  readonly reads: Reads;
  readonly limit: Pick<RateLimit, "read">;
  readonly log: Logger;
}

interface Caller {
  readonly user: string;
  readonly tier: UserTier;
}

/** A list costs this much of a status, because it reads the facts of many analyses. */
const LIST_COST = 10;
/** A look for a user asks both upstreams. */
const USER_COST = 10;

const PREFLIGHT = {
  methods: "GET, HEAD, POST",
  headers: `authorization, content-type, idempotency-key, cache-control, ${TRACE_CONTEXT}`,
};
/** A page may read the other headers anyway. */
const READABLE = "Location, Retry-After, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, RateLimit-Policy";

export function createAnalysisRouter({ authorize, allowedOrigins, ask, isUser, reads, limit, log }: RouteDeps): Router {
  const router = Router();
  const document = openApi();
  router.use((request, response, next) => {
    const cors = corsHeaders(request, allowedOrigins);
    if (isPreflight(request, cors)) return answerPreflight(response, cors, PREFLIGHT);
    response.set(cors).set("Access-Control-Expose-Headers", READABLE);
    next();
  });
  const known: RequestHandler = async (request, response, next) => {
    response.set("Cache-Control", "no-store");
    const { user, tier } = await authorize(request.headers);
    const fault = storedIdFault(user);
    if (fault !== undefined) throw badRequest([{ field: "sub", detail: `of the access token ${fault}` }]);
    response.locals["caller"] = { user, tier: userTierOf(tier) } satisfies Caller;
    next();
  };
  const read = async ({ user }: Caller, cost: number): Promise<void> => {
    const seconds = await limit.read(user, cost);
    if (seconds > 0) throw new Problem(429, "too many reads at once", { headers: { "Retry-After": String(seconds) } });
  };
  const isKnown = async (caller: Caller, account: unknown): Promise<boolean> => {
    if (account === caller.user) return true;
    if (isUser === undefined || typeof account !== "string" || !looksLikeHandle(account)) return false;
    await read(caller, USER_COST);
    return isUser(account);
  };
  const get = (
    path: string,
    answer: (caller: Caller, request: Request<{ id: string }>) => Promise<unknown>,
    cost = 1,
  ): void => {
    router
      .route(path)
      .get(known, async (request, response) => {
        await read(callerOf(response), cost);
        const work = () => answer(callerOf(response), request as Request<{ id: string }>);
        response.json(await inRequest(request, path, work));
      })
      .all(allowOnly("GET, HEAD"));
  };
  router.route("/api/v1/timeline/analyze").post(timed, known, analyze(ask, isKnown)).all(allowOnly("POST"));
  get(statusPath(":id"), ({ user }, request) => reads.analysis(user, request.params.id));
  get("/api/v1/timeline/analyses", ({ user }, request) => reads.analyses(user, pageOf(request)), LIST_COST);
  get("/api/v1/xp", ({ user }, request) => reads.rewards(user, pageOf(request)));
  router
    .route("/openapi.json")
    .get((_request, response) => void response.json(document))
    .all(allowOnly("GET, HEAD"));
  router.use(createProblemHandler(log));
  return router;
}

const timed: RequestHandler = (_request, response, next) => {
  const start = performance.now();
  response.once("finish", () => observeHttp.answered(response.statusCode, (performance.now() - start) / 1_000));
  next();
};

const callerOf = (response: Response): Caller => response.locals["caller"] as Caller;

const analyze =
  (ask: Ask, isKnown: (caller: Caller, account: unknown) => Promise<boolean>): RequestHandler =>
  async (request, response) => {
    const { user, tier } = callerOf(response);
    const key = readIdempotencyKey(request.get("Idempotency-Key"));
    const body = await readJson(request);
    const account = (body as { readonly did?: unknown } | null)?.did;
    const order = understood((await isKnown({ user, tier }, account)) ? KNOWN_ORDER : ANALYSIS_ORDER, body, "body");
    const work = () => ask({ user_id: user, ...order, tier, key });
    const { answer, quota } = await inRequest(request, request.path, work);
    response
      .status(202)
      .set({ Location: answer.status_url, ...(quota && quotaHeaders(quota)) })
      .json(answer);
  };

/** Continues the client's trace. */
function inRequest<T>(request: Request, path: string, work: () => Promise<T>): Promise<T> {
  const headers = { get: (name: string) => request.get(name), entries: () => Object.entries(request.headers) };
  const parent = contextOf(headers as Parameters<typeof contextOf>[0]);
  return inSpan(`${request.method} ${path}`, { kind: SpanKind.SERVER, parent }, work);
}

const allowOnly =
  (methods: string): RequestHandler =>
  (request) => {
    throw new Problem(405, `${request.method} is not allowed here`, { headers: { Allow: methods } });
  };

const pageOf = (request: Request<{ id: string }>): z.output<typeof PAGE> => understood(PAGE, request.query, "query");

function understood<Schema extends z.ZodType>(schema: Schema, value: unknown, whole: string): z.output<Schema> {
  const parsed = schema.safeParse(value, { error: faultInWords });
  if (parsed.success) return parsed.data;
  const { issues } = parsed.error;
  throw badRequest(issues.map(({ path, message }) => ({ field: path.join(".") || whole, detail: message })));
}
