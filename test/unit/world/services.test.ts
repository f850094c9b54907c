import { credentials, Server, ServerCredentials, type ServiceError, status } from "@grpc/grpc-js";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { PostServiceClient, PostServiceService, Visibility } from "../../../src/gen/avion/posts.js";
import { UserServiceClient, UserServiceService } from "../../../src/gen/avion/users.js";
import { createFaults } from "../../../src/world/faults.js";
import { createPostService } from "../../../src/world/post-service.grpc.js";
import { createUserService } from "../../../src/world/user-service.grpc.js";
import { World } from "../../../src/world/world.js";

type Call<Response> = (callback: (error: ServiceError | null, response: Response) => void) => unknown;

function reply<Response>(call: Call<Response>): Promise<Response> {
  return new Promise((resolve, reject) =>
    call((error, response) => (error === null ? resolve(response) : reject(error))),
  );
}

let world: World;
let faults: ReturnType<typeof createFaults>;
let server: Server;
let users: UserServiceClient;
let posts: PostServiceClient;

beforeEach(async () => {
  world = new World({ now: () => 1_000 });
  faults = createFaults();
  server = new Server();
  server.addService(UserServiceService, createUserService({ world, faults }));
  server.addService(PostServiceService, createPostService({ world, faults }));
  const port = await reply<number>((done) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), done as never),
  );
  users = new UserServiceClient(`127.0.0.1:${port}`, credentials.createInsecure());
  posts = new PostServiceClient(`127.0.0.1:${port}`, credentials.createInsecure());
});

afterEach(() => {
  users.close();
  posts.close();
  server.forceShutdown();
});

const list = (user_id: string, page_size = 0, page_token = "") => ({ user_id, page_size, page_token });
const followers = (user_id: string, page_size = 0, page_token = "") =>
  reply((done) => users.getFollowersList(list(user_id, page_size, page_token), done));
const drops = (user_id: string, cursor = {}) =>
  reply((done) => posts.getDropsByUserId({ user_id, limit: 0, max_id: "", before: 0, ...cursor }, done));

test("lists, drops and changes travel over the wire", async () => {
  world.follow("bob", "ada");
  world.addDrop({ drop_id: "d", created_at: 5, user_id: "ada", visibility: "direct", recipients: ["bob"] });
  expect(await followers("ada")).toEqual({ user_ids: ["bob"], next_page_token: "", total_count: 1 });
  expect(await reply((done) => users.getFollowingList(list("bob"), done))).toMatchObject({
    user_ids: ["ada"],
    total_count: 1,
  });
  const drop = {
    drop_id: "d",
    user_id: "ada",
    visibility: Visibility.DIRECT,
    created_at: 5,
    deleted: false,
    recipients: ["bob"],
  };
  expect(await drops("ada")).toEqual({ drops: [drop] });
  const window = { since: 1_000, until: 0, page_size: 0, page_token: "" };
  expect(await reply((done) => posts.listDrops(window, done))).toEqual({ drops: [drop], next_page_token: "" });
  expect(await reply((done) => users.listFollowChanges(window, done))).toEqual({
    changes: [{ follower_id: "bob", following_id: "ada", version: 1_000, following: true, changed_at: 1_000 }],
    next_page_token: "",
  });
});

test("bad arguments are INVALID_ARGUMENT and name the field", async () => {
  const refusal = (details: string) => ({ code: status.INVALID_ARGUMENT, details: expect.stringContaining(details) });
  await expect(followers("ada", -1)).rejects.toMatchObject(refusal("page_size"));
  await expect(followers("ada", 0, "junk")).rejects.toMatchObject(refusal("page_token"));
  await expect(followers("")).rejects.toMatchObject(refusal("user_id"));
  await expect(drops("ada", { limit: -1 })).rejects.toMatchObject(refusal("limit"));
  await expect(drops("ada", { max_id: "never" })).rejects.toMatchObject(refusal("max_id"));
  const window = { since: 0, until: 0, page_size: 0, page_token: "junk" };
  await expect(reply((done) => posts.listDrops(window, done))).rejects.toMatchObject(refusal("page_token"));
});

test("faults break a service, a method, or the calls about one user, until cleared", async () => {
  faults.set({ service: "users", method: "GetFollowersList", userId: "ada", code: status.RESOURCE_EXHAUSTED });
  await expect(followers("ada")).rejects.toMatchObject({ code: status.RESOURCE_EXHAUSTED });
  await followers("bob");
  faults.set({ service: "users", code: status.UNAVAILABLE });
  await expect(followers("bob")).rejects.toMatchObject({ code: status.UNAVAILABLE });
  await expect(followers("ada")).rejects.toMatchObject({ code: status.RESOURCE_EXHAUSTED });
  await drops("bob");
  faults.clear();
  expect(await followers("ada")).toMatchObject({ total_count: 0 });
});

test("a delay with code OK is only slow, and ends with the caller's deadline", async () => {
  faults.set({ service: "posts", code: status.OK, delayMs: 80 });
  const start = performance.now();
  await drops("ada");
  expect(performance.now() - start).toBeGreaterThan(70);
  faults.set({ service: "posts", code: status.OK, delayMs: 60_000 });
  const request = { user_id: "ada", limit: 0, max_id: "", before: 0 };
  const late = reply((done) => posts.getDropsByUserId(request, { deadline: Date.now() + 50 } as never, done));
  await expect(late).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED });
});
