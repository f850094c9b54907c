import type { RequestHandler, Response, Router } from "express";
import {
  ANALYSIS_ORDER,
  KNOWN_ORDER,
  looksLikeHandle,
  statusPath,
  type UserTier,
  userTierOf,
} from "../../contracts/analysis.js";
import { type ApiDeps, allowOnly, callerOf, createApi, inRequest, understood } from "../../platform/http/api.js";
import { readJson } from "../../platform/http/body.js";
import { quotaHeaders } from "../../state/index.js";
import { observeHttp } from "../observe.js";
import type { Ask } from "./ask.js";
import { asyncApi } from "./asyncapi.js";
import { readIdempotencyKey } from "./idempotency.nats.js";
import { openApi } from "./openapi.js";
import type { Reads } from "./read.js";
import { PAGE } from "./schemas.js";

export interface RouteDeps extends Omit<ApiDeps, "refused"> {
  readonly ask: Ask;
  /** Undefined if the upstreams are not configured. */
  readonly isUser: ((id: string) => Promise<boolean>) | undefined;
  readonly reads: Reads;
  /** The process serves pages of timelines beside these routes. */
  readonly servesTimelines: boolean;
  /** And notifications. */
  readonly servesNotifications: boolean;
  /** Paths that clients are told begin with it. */
  readonly pathPrefix: string;
  /** Names of Pub/Sub channels begin with it. */
  readonly channelPrefix: string;
}

interface Caller {
  readonly user: string;
  readonly tier: UserTier;
}

/** A list costs this much of a status, because it reads the facts of many analyses. */
const LIST_COST = 10;
/** Both upstreams are asked for a user. */
const USER_COST = 10;
const MAX_BODY_BYTES = 16 * 1_024;

export function createAnalysisRouter({ ask, isUser, reads, ...deps }: RouteDeps): Router {
  const api = createApi({ ...deps, refused: observeHttp.refused });
  const documents = { "/openapi.json": openApi(deps), "/asyncapi.json": asyncApi(deps) };
  const { pathPrefix } = deps;
  const isKnown = async (caller: Caller, account: unknown): Promise<boolean> => {
    if (account === caller.user) return true;
    if (isUser === undefined || typeof account !== "string" || !looksLikeHandle(account)) return false;
    await api.read(caller, USER_COST);
    return isUser(account);
  };
  const toldAsk: Ask = async (order) => {
    const { answer, ...rest } = await ask(order);
    return { ...rest, answer: { ...answer, status_url: pathPrefix + answer.status_url } };
  };
  api.router.route("/api/v1/timeline/analyze").post(timed, api.known, analyze(toldAsk, isKnown)).all(allowOnly("POST"));
  api.get(statusPath(":id"), ({ user }, request) => reads.analysis(user, request.params.id));
  api.get("/api/v1/timeline/analyses", ({ user }, { query }) => reads.analyses(user, pageOf(query)), LIST_COST);
  api.get("/api/v1/xp", ({ user }, { query }) => reads.rewards(user, pageOf(query)));
  for (const [path, document] of Object.entries(documents))
    api.router
      .route(path)
      .get((_request, response) => void response.json(document))
      .all(allowOnly("GET, HEAD"));
  return api.complete();
}

const timed: RequestHandler = (_request, response, next) => {
  const start = performance.now();
  response.once("finish", () => observeHttp.answered(response.statusCode, (performance.now() - start) / 1_000));
  next();
};

const asking = (response: Response): Caller => {
  const { user, tier } = callerOf(response);
  return { user, tier: userTierOf(tier) };
};

const analyze =
  (ask: Ask, isKnown: (caller: Caller, account: unknown) => Promise<boolean>): RequestHandler =>
  async (request, response) => {
    const { user, tier } = asking(response);
    const key = readIdempotencyKey(request.get("Idempotency-Key"));
    const body = await readJson(request, MAX_BODY_BYTES);
    const account = (body as { readonly did?: unknown } | null)?.did;
    const order = understood((await isKnown({ user, tier }, account)) ? KNOWN_ORDER : ANALYSIS_ORDER, body, "body");
    const work = () => ask({ user_id: user, ...order, tier, key });
    const { answer, quota } = await inRequest(request, request.path, work);
    response
      .status(202)
      .set({ Location: answer.status_url, ...(quota && quotaHeaders(quota)) })
      .json(answer);
  };

const pageOf = (query: unknown) => understood(PAGE, query, "query");
