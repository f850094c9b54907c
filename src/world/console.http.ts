import { fileURLToPath } from "node:url";
import express, { type Request, type Response, Router } from "express";
import type { GetTimelineResponse } from "../gen/avion/timeline.js";
import type { Actions } from "./actions.js";
import {
  dropsRequest,
  faultRequest,
  followRequest,
  parse,
  sessionRequest,
  timelineRequest,
  usersRequest,
} from "./console-requests.js";
import { FAULT_CODES, type Faults } from "./faults.js";
import { createProblemHandler, sendProblem } from "./problem.http.js";
import type { World } from "./world.js";
import { invalid, WorldError } from "./world-error.js";

export interface ConsoleDeps {
  readonly world: World;
  readonly actions: Actions;
  readonly faults: Faults;
  /** Makes the access token of a user. */
  readonly issueToken: (user: string) => string | Promise<string>;
  /** Reads a page of a home timeline over gRPC. */
  readonly readHome: (user: string, cursor: { readonly max_id: string }) => Promise<GetTimelineResponse>;
  /** Hears of every failure that is not the caller's fault. */
  readonly onError?: (error: unknown) => void;
}

const ASSETS = fileURLToPath(new URL("./console/", import.meta.url));

const POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'";

/** gRPC's INVALID_ARGUMENT: the cursor is the only argument that can be wrong here. */
const INVALID_ARGUMENT = 3;

/**
 * The page to play with the world, at the router's root, and its JSON routes
 * below /world. Whoever reaches it may act as anybody: for local use only.
 */
export function createConsoleRouter(deps: ConsoleDeps): Router {
  const router = Router();
  const onError = deps.onError ?? (() => undefined);
  router.use("/world", noStore, express.json({ limit: "16kb" }), createWorldRoutes(deps), unknownRoute);
  router.use("/world", createProblemHandler(onError));
  router.use(
    express.static(ASSETS, {
      setHeaders: (response) => {
        response.setHeader("Content-Security-Policy", POLICY);
        response.setHeader("X-Content-Type-Options", "nosniff");
        response.setHeader("Cache-Control", "no-cache");
      },
    }),
  );
  return router;
}

function createWorldRoutes(deps: ConsoleDeps): Router {
  const router = Router();
  addReads(router, deps);
  addDrops(router, deps);
  addFollows(router, deps);
  addFaults(router, deps.faults);
  return router;
}

function addReads(router: Router, { world, issueToken, readHome, onError }: ConsoleDeps): void {
  router.post("/session", async (request, response) => {
    const { user } = parse(sessionRequest, request.body);
    requireUser(world, "user", user);
    response.cookie("access_token", await issueToken(user), { httpOnly: true, sameSite: "lax", path: "/" });
    response.json({ user: world.summary(user) });
  });
  router.get("/users", (request, response) => {
    response.json({ users: world.listUsers(parse(usersRequest, request.query)), total: world.size.users });
  });
  router.get("/timeline", async (request, response) => {
    const { user, max_id } = parse(timelineRequest, request.query);
    requireUser(world, "user", user);
    try {
      const { drop_ids, ...rest } = await readHome(user, { max_id });
      response.json({ drops: drop_ids.map((id) => presentDrop(world, id)), ...rest });
    } catch (error) {
      if ((error as { code?: unknown } | undefined)?.code === INVALID_ARGUMENT)
        throw invalid("max_id", "is not understood");
      onError?.(error);
      sendProblem(response, {
        status: 502,
        title: "Timeline unavailable",
        detail: "the timeline service did not answer",
      });
    }
  });
}

function addDrops(router: Router, { world, actions }: ConsoleDeps): void {
  router.get("/drops/:id", (request, response) => {
    if (world.drop(request.params.id) === undefined)
      throw new WorldError("unknown", "drop_id", "is no drop of this world");
    response.json(presentDrop(world, request.params.id));
  });
  router.post("/drops", async (request, response) => {
    const { user, count, visibility, recipients } = parse(dropsRequest, request.body);
    requireUser(world, "user", user);
    const drop_ids: string[] = [];
    for (let made = 0; made < count; made++) {
      drop_ids.push((await actions.post({ user_id: user, visibility, recipients })).drop_id);
    }
    response.status(201).json({ drops: drop_ids.map((id) => presentDrop(world, id)) });
  });
  router.delete("/drops/:id", async (request, response) => {
    const drop = await actions.delete(request.params.id);
    if (drop === undefined) throw new WorldError("unknown", "drop_id", "is no drop of this world (any more)");
    response.status(204).end();
  });
}

function addFollows(router: Router, { world, actions }: ConsoleDeps): void {
  const change = (act: Actions["follow"]) => async (request: Request, response: Response) => {
    const { follower_id, following_id } = parse(followRequest, request.body);
    requireUser(world, "follower_id", follower_id);
    requireUser(world, "following_id", following_id);
    const edge = await act(follower_id, following_id);
    response.json({ changed: edge !== undefined, edge: edge ?? world.edge(follower_id, following_id) ?? null });
  };
  router.post("/follows", change(actions.follow));
  router.delete("/follows", change(actions.unfollow));
}

function addFaults(router: Router, faults: Faults): void {
  router.get("/faults", (_request, response) => {
    response.json({ faults: faults.list() });
  });
  router.post("/faults", (request, response) => {
    const { service, method, user_id, code, delay_ms } = parse(faultRequest, request.body);
    faults.set({ service, method, userId: user_id, code: FAULT_CODES[code], delayMs: delay_ms });
    response.json({ faults: faults.list() });
  });
  router.delete("/faults", (_request, response) => {
    faults.clear();
    response.json({ faults: [] });
  });
}

function presentDrop(world: World, drop_id: string): object {
  const drop = world.drop(drop_id);
  return {
    drop_id,
    author: drop?.user_id ?? "",
    created_at: drop?.created_at ?? null,
    visibility: drop?.visibility ?? null,
    deleted: drop?.deleted ?? false,
  };
}

function requireUser(world: World, field: string, user: string): void {
  if (!world.hasUser(user)) throw invalid(field, "is no user of this world");
}

function noStore(_request: Request, response: Response, next: () => void): void {
  response.setHeader("Cache-Control", "no-store");
  next();
}

function unknownRoute(): void {
  throw new WorldError("unknown", "path", "is no route of the console");
}
