import type { RequestHandler, Router } from "express";
import { NEW_POSITION, POSITIONS_PATH } from "../contracts/positions.js";
import { type ApiDeps, allowOnly, callerOf, createApi, inRequest, understood } from "../platform/http/api.js";
import { readJson } from "../platform/http/body.js";
import type { CallPositions } from "../upstreams/timelines.grpc.js";
import { observeGateway } from "./observe.js";

interface PositionRouteDeps extends Omit<ApiDeps, "refused"> {
  readonly positions: CallPositions;
}

const MAX_BODY_BYTES = 16 * 1_024;

/** Serves the caller's positions over HTTP. The role api bounds how often they are set. */
export function createPositionRouter({ positions, ...deps }: PositionRouteDeps): Router {
  const api = createApi({ ...deps, refused: observeGateway.pageRefused });
  const list: RequestHandler = async (request, response) => {
    const caller = callerOf(response);
    await api.read(caller, 1);
    response.json(await inRequest(request, POSITIONS_PATH, () => positions.list({ user_id: caller.user })));
  };
  const set: RequestHandler = async (request, response) => {
    const { user } = callerOf(response);
    const position = understood(NEW_POSITION, await readJson(request, MAX_BODY_BYTES), "body");
    response.json(await inRequest(request, POSITIONS_PATH, () => positions.set({ user_id: user, ...position })));
  };
  api.router.route(POSITIONS_PATH).get(api.known, list).post(api.known, set).all(allowOnly("GET, HEAD, POST"));
  return api.complete();
}
