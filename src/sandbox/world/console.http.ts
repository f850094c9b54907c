import { fileURLToPath } from "node:url";
import { status } from "@grpc/grpc-js";
import express, { type Request, type Response, Router } from "express";
import { z } from "zod";
import type { GetTimelineResponse } from "../../gen/avion/timeline.js";
import { idFault } from "../../kernel/ids.js";
import { FAULT_SERVICES, type Faults } from "./faults.grpc.js";
import { type People, type SeenDrop, visibilityNamed } from "./people.grpc.js";
import { createProblemHandler, invalid, sendProblem, WorldError } from "./problem.http.js";

export interface ConsoleDeps {
  readonly people: People;
  readonly faults: Faults;
  readonly issueToken: (user: string) => string | Promise<string>;
  readonly readHome: (user: string, cursor: { readonly max_id: string }) => Promise<GetTimelineResponse>;
  /** Called with every failure that is not the caller's fault. */
  readonly onError?: (error: unknown) => void;
}

const ASSETS = fileURLToPath(new URL("./console/", import.meta.url));

const POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'";

const VISIBILITIES = ["public", "unlisted", "followers", "direct"] as const;

const id = z.string().superRefine((value, context) => {
  const fault = idFault(value);
  if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
});

type CodeName = keyof typeof status;
/** An enum of TypeScript holds its numbers as keys, too. */
const codeName = z.enum(Object.keys(status).filter((key) => Number.isNaN(Number(key))) as [CodeName]);

const sessionRequest = z.strictObject({ user: id });

const timelineRequest = z.object({ user: id, max_id: z.string().max(1_024).default("") });

const usersRequest = z.object({
  prefix: z.string().max(128).default(""),
  limit: z.coerce.number().int().min(1).max(1_000).default(400),
});

const dropsRequest = z.strictObject({
  user: id,
  visibility: z.enum(VISIBILITIES).default("public"),
  recipients: z.array(id).max(20).default([]),
  body: z.string().max(5_000).default(""),
  count: z.number().int().min(1).max(100).default(1),
});

const followRequest = z.strictObject({ follower_id: id, following_id: id });

const faultRequest = z.strictObject({
  service: z.enum(FAULT_SERVICES),
  method: z.string().min(1).max(64).optional(),
  user_id: id.optional(),
  code: codeName.default("UNAVAILABLE"),
  delay_ms: z.number().int().min(0).max(60_000).optional(),
});

/** The page at the router's root and its JSON routes below /world. For local use only: a caller may act as any user. */
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
      // The cursor is the only argument that can be wrong here.
      if ((error as { code?: unknown } | undefined)?.code === status.INVALID_ARGUMENT)
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
    faults.set({ service, method, userId: user_id, code: status[code], delayMs: delay_ms });
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

/** @throws WorldError naming the first field at fault */
function parse<T extends z.ZodType>(schema: T, value: unknown): z.output<T> {
  const result = schema.safeParse(value ?? {});
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const unknownKey = issue?.code === "unrecognized_keys" ? issue.keys[0] : undefined;
  const field = [...(issue?.path ?? []), ...(unknownKey === undefined ? [] : [unknownKey])].join(".");
  throw invalid(
    field === "" ? "body" : field,
    unknownKey === undefined ? (issue?.message ?? "is invalid") : "is not a field",
  );
}
