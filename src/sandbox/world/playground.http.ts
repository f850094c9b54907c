import { createRequire } from "node:module";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { status } from "@grpc/grpc-js";
import express, { type ErrorRequestHandler, type Request, type Response, Router } from "express";
import { z } from "zod";
import { MAX_LIMIT } from "../../contracts/timeline-pages.js";
import { VISIBILITY_NAMES } from "../../contracts/timelines.js";
import { understood, userId } from "../../contracts/untrusted.js";
import { type GetDropResponse, Visibility } from "../../gen/avion/posts.js";
import { Standing } from "../../gen/avion/users.js";
import { AppError } from "../../kernel/errors.js";
import { staticPage } from "../../platform/http/page.js";
import type { Faults } from "./faults.grpc.js";
import { addDeadLetters, addFaults, type DeadLetters } from "./playground-faults.http.js";
import { addLists } from "./playground-lists.http.js";
import { addStandings } from "./playground-standings.http.js";
import {
  dropsOf,
  hiddenFrom,
  requestsTo,
  requireUser,
  type SeenDrop,
  seen,
  viewsOf,
  type World,
} from "./world.grpc.js";

interface PlaygroundDeps {
  readonly world: World;
  readonly faults: Faults;
  readonly deadLetters: DeadLetters;
  readonly issueToken: (user: string) => string | Promise<string>;
}

const folderOf = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const ASSETS = folderOf("./playground/");
/** The console of operators has the same charts. */
const CHART = folderOf("../../operators/console/page/chart/");
/** `npm run build` makes it. The page reads timelines, streams and analyses by it. */
const CLIENT = folderOf("../../../clients/typescript/dist/");
const require = createRequire(import.meta.url);
const PICO = dirname(require.resolve("@picocss/pico/css/pico.min.css"));

const sessionRequest = z.strictObject({ user: userId });
const viewsRequest = z.strictObject({ user: userId, drop_ids: z.array(z.string().max(1_024)).max(MAX_LIMIT) });
const usersRequest = z.object({
  prefix: z.string().max(128).default(""),
  limit: z.coerce.number().int().min(1).max(1_000).default(400),
});
const dropsRequest = z.strictObject({
  user: userId,
  visibility: z.enum(Object.values(VISIBILITY_NAMES)).default("public"),
  recipients: z.array(userId).max(20).default([]),
  body: z.string().max(5_000).default(""),
  reply_to: z.string().max(1_024).default(""),
  /** The URL of a file; "": none. */
  attachment: z.string().max(2_048).default(""),
  count: z.number().int().min(1).max(100).default(1),
});
const editRequest = z.strictObject({ body: z.string().min(1).max(5_000) });
const viewerRequest = z.object({ user: userId.optional() });
const followRequest = z.strictObject({ follower_id: userId, following_id: userId });
const relationRequest = z.strictObject({ user_id: userId, target_id: userId });
const reactionRequest = z.strictObject({ user_id: userId, drop_id: z.string().max(1_024) });
/**
 * Serves the page at the router's root and its JSON routes below /world. It is for local use only: a caller may act as
 * any user.
 */
export function createPlaygroundRouter(deps: PlaygroundDeps): Router {
  const router = Router();
  const world = Router();
  world.use((_request, response, next) => {
    response.setHeader("Cache-Control", "no-store");
    next();
  });
  world.use(express.json({ limit: "16kb" }));
  addReads(world, deps);
  addDrops(world, deps.world);
  addChanges(world, deps.world);
  addFaults(world, deps.faults);
  addDeadLetters(world, deps.deadLetters);
  addStandings(world, deps.world);
  addLists(world, deps.world);
  world.use(refusals);
  router.use("/world", world);
  router.use(staticPage(ASSETS));
  router.use("/chart", staticPage(CHART));
  router.use("/client", staticPage(CLIENT));
  router.use("/pico", staticPage(PICO));
  return router;
}

/** The newest follows of a user: nobody of this world has more. */
const FOLLOWS_READ = 1_000;

/** The text of a service with one of these codes is meant for its caller. */
const REFUSALS = new Set([status.INVALID_ARGUMENT, status.RESOURCE_EXHAUSTED, status.FAILED_PRECONDITION]);

const refusals: ErrorRequestHandler = (error: { code?: status; details?: string }, _request, _response, next) => {
  const { code, details = "" } = error;
  if (code === status.NOT_FOUND) next(new AppError("notfound", details, { cause: error }));
  else next(code !== undefined && REFUSALS.has(code) ? new AppError("invalid", details, { cause: error }) : error);
};

function addReads(router: Router, { world, issueToken }: PlaygroundDeps): void {
  const summary = async (user: string) => {
    await requireUser(world, "user", user);
    const [counts, { follows }, { entry }] = await Promise.all([
      world.users.getFollowCounts({ user_id: user }),
      world.users.listFollowing({ user_id: user, page_size: FOLLOWS_READ }),
      world.users.getStanding({ user_id: user }),
    ]);
    const suspended = entry?.standing === Standing.SUSPENDED;
    return { user: { user_id: user, ...counts, follows: follows.map((follow) => follow.user_id), suspended } };
  };
  router.post("/session", async (request, response) => {
    const { user } = understood(sessionRequest, request.body ?? {});
    response.json({ ...(await summary(user)), token: await issueToken(user) });
  });
  router.get("/users", async (request, response) => {
    const { prefix, limit } = understood(usersRequest, request.query);
    const { profiles } = await world.users.listProfiles({ prefix, page_size: limit });
    response.json({ users: profiles.map(({ user_id }) => ({ user_id })) });
  });
  router.get("/users/:id", async (request, response) => void response.json(await summary(request.params.id)));
  router.post("/views", async (request, response) => {
    const { user, drop_ids } = understood(viewsRequest, request.body ?? {});
    await requireUser(world, "user", user);
    const drops = await dropsOf(world, drop_ids, user);
    const [views, hidden, requests] = await Promise.all([
      viewsOf(world, drops, user),
      hiddenFrom(world, user),
      requestsTo(world, user),
    ]);
    response.json({ drops: views, ...hidden, requests });
  });
}

/** Each of several drops has a text of its own: the same text is limited. */
const textOf = (body: string, number: number, count: number): string =>
  count === 1 ? body || "Hello" : `${body} ${number} of ${count}`.trim();

function addDrops(router: Router, world: World): void {
  const find = async (request: Request<{ id: string }>, viewer?: string): Promise<SeenDrop> => {
    const [drop] = await dropsOf(world, [request.params.id], viewer);
    if (!drop) throw new AppError("notfound", "drop_id: is no drop of this world");
    return drop;
  };
  router.get("/drops/:id", async (request, response) => {
    const { user } = understood(viewerRequest, request.query);
    const drop = await find(request, user);
    response.json(user === undefined ? drop : (await viewsOf(world, [drop], user))[0]);
  });
  router.post("/drops", async (request, response) => {
    const {
      user: user_id,
      count,
      visibility,
      body,
      attachment,
      ...more
    } = understood(dropsRequest, request.body ?? {});
    await requireUser(world, "user", user_id);
    const draft = {
      user_id,
      visibility: Visibility[visibility.toUpperCase() as Uppercase<typeof visibility>],
      attachments: attachment === "" ? [] : [{ url: attachment, media_type: "", description: "", width: 0, height: 0 }],
      ...more,
    };
    const drops: SeenDrop[] = [];
    let stopped: string | undefined;
    while (drops.length < count && stopped === undefined) {
      const text = textOf(body, drops.length + 1, count);
      try {
        drops.push(
          seen({ ...(await world.posts.createDrop({ ...draft, body: text })), counts: undefined, viewer: undefined }),
        );
      } catch (error) {
        const { code, details } = error as { code?: status; details?: string };
        if (drops.length === 0 || code !== status.RESOURCE_EXHAUSTED) throw error;
        stopped = details;
      }
    }
    response.status(201).json({ drops, stopped });
  });
  router.put("/drops/:id", async (request, response) => {
    const { body } = understood(editRequest, request.body ?? {});
    const { drop_id, repost_of } = await find(request);
    const { drop } = await world.posts.getDrop({ drop_id: repost_of || drop_id });
    // An edit removes what it does not name.
    response.json(seen({ ...(await world.posts.editDrop({ ...drop, body })), counts: undefined, viewer: undefined }));
  });
  router.get("/threads/:id", async (request, response) => {
    const { user: viewer_id = "" } = understood(viewerRequest, request.query);
    const asked = { drop_id: request.params.id, viewer_id };
    const { ancestors, drop, replies, next_page_token } = await world.posts.getThread(asked);
    const above = [...ancestors, ...(drop ? [drop] : [])].map((each) => ({ ...seen(each), depth: 0 }));
    const below = replies.map(({ reply, depth }) => ({ ...seen(reply as GetDropResponse), depth }));
    response.json({ drops: [...above, ...below], has_more: next_page_token !== "" });
  });
  router.delete("/drops/:id", async (request, response) => {
    const { drop_id, author, reposted_by, deleted } = await find(request);
    if (deleted) throw new AppError("notfound", "drop_id: is no drop of this world any more");
    await world.posts.deleteDrop({ drop_id, user_id: reposted_by || author });
    response.status(204).end();
  });
}

function addChanges(router: Router, world: World): void {
  const change =
    <Fields extends Record<string, string>>(
      schema: z.ZodType<Fields>,
      act: (fields: Fields) => Promise<{ readonly changed: boolean; readonly pending?: boolean }>,
    ) =>
    async (request: Request, response: Response): Promise<void> => {
      const fields = understood(schema, request.body ?? {});
      for (const [field, id] of Object.entries(fields)) if (field !== "drop_id") await requireUser(world, field, id);
      const { changed, pending } = await act(fields);
      response.json({ changed, pending });
    };
  const { users, posts } = world;
  router.post("/follows", change(followRequest, users.follow));
  router.delete("/follows", change(followRequest, users.unfollow));
  const answer = (act: typeof users.acceptFollow) =>
    change(relationRequest, ({ user_id, target_id }) => act({ user_id, follower_id: target_id }));
  router.post("/followers", answer(users.acceptFollow));
  router.delete("/followers", answer(users.removeFollower));
  router.post("/mutes", change(relationRequest, users.mute));
  router.delete("/mutes", change(relationRequest, users.unmute));
  router.post("/blocks", change(relationRequest, users.block));
  router.delete("/blocks", change(relationRequest, users.unblock));
  router.post("/likes", change(reactionRequest, posts.likeDrop));
  router.delete("/likes", change(reactionRequest, posts.unlikeDrop));
  router.post("/shares", change(reactionRequest, posts.shareDrop));
  router.delete("/shares", change(reactionRequest, posts.unshareDrop));
}
