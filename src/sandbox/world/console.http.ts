import { fileURLToPath } from "node:url";
import express, { type Request, type Response, Router } from "express";
import type { GetTimelineResponse } from "../../gen/avion/timeline.js";
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
import { visibilityNamed } from "./people.grpc.js";
import type { People, SeenDrop } from "./people.js";
import { createProblemHandler, sendProblem } from "./problem.http.js";
import { invalid, WorldError } from "./world-error.js";

export interface ConsoleDeps {
  readonly people: People;
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

function addReads(router: Router, { people, issueToken, readHome, onError }: ConsoleDeps): void {
  router.post("/session", async (request, response) => {
    const { user } = parse(sessionRequest, request.body);
    await requireUser(people, "user", user);
    response.cookie("access_token", await issueToken(user), { httpOnly: true, sameSite: "lax", path: "/" });
    response.json({ user: await people.summary(user) });
  });
  router.get("/users", async (request, response) => {
    const { prefix, limit } = parse(usersRequest, request.query);
    response.json({ users: (await people.list(prefix, limit)).map((user_id) => ({ user_id })) });
  });
  router.get("/users/:id", async (request, response) => {
    await requireUser(people, "user", request.params.id);
    response.json({ user: await people.summary(request.params.id) });
  });
  router.get("/timeline", async (request, response) => {
    const { user, max_id } = parse(timelineRequest, request.query);
    await requireUser(people, "user", user);
    try {
      const { drop_ids, ...rest } = await readHome(user, { max_id });
      response.json({ drops: await people.drops(drop_ids), ...rest });
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

function addDrops(router: Router, { people }: ConsoleDeps): void {
  router.get("/drops/:id", async (request, response) => {
    const drop = await people.drop(request.params.id);
    if (drop === undefined) throw new WorldError("unknown", "drop_id", "is no drop of this world");
    response.json(drop);
  });
  router.post("/drops", async (request, response) => {
    const { user, count, visibility, recipients, body } = parse(dropsRequest, request.body);
    await requireUser(people, "user", user);
    const drops: SeenDrop[] = [];
    for (let made = 1; made <= count; made++) {
      const draft = { user_id: user, visibility: visibilityNamed(visibility), recipients };
      drops.push(await people.post({ ...draft, body: body || (count > 1 ? `${made} of ${count}` : "Hello") }));
    }
    response.status(201).json({ drops });
  });
  router.delete("/drops/:id", async (request, response) => {
    const drop = await people.remove(request.params.id);
    if (drop === undefined) throw new WorldError("unknown", "drop_id", "is no drop of this world (any more)");
    response.status(204).end();
  });
}

function addFollows(router: Router, { people }: ConsoleDeps): void {
  const change = (act: People["follow"]) => async (request: Request, response: Response) => {
    const pair = parse(followRequest, request.body);
    await requireUser(people, "follower_id", pair.follower_id);
    await requireUser(people, "following_id", pair.following_id);
    response.json({ changed: await act(pair) });
  };
  router.post("/follows", change(people.follow));
  router.delete("/follows", change(people.unfollow));
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

async function requireUser(people: People, field: string, user: string): Promise<void> {
  if (!(await people.isKnown(user))) throw invalid(field, "is no user of this world");
}

function noStore(_request: Request, response: Response, next: () => void): void {
  response.setHeader("Cache-Control", "no-store");
  next();
}

function unknownRoute(): void {
  throw new WorldError("unknown", "path", "is no route of the console");
}
