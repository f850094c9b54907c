import { rm } from "node:fs/promises";
import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { Visibility } from "../../src/gen/avion/posts.js";
import { type Api, openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes, eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import type { Service } from "../support/service.js";
import { type Stack, testWithStack } from "../support/stack.js";

/** Starts roles on an embedded database of their own. */
async function startOnOwn(stack: Stack, roles: string, env: Record<string, string> = {}): Promise<[Service, Api]> {
  const folder = await temporaryFolder("data");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const service = await stack.start({ roles, env: { TIMELINE_DATA_DIR: folder, ...env } });
  const api = openApi(service.grpcAddress);
  stack.defer(() => api.close());
  return [service, api];
}

const codeOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => "OK",
    (error: { code: status }) => status[error.code] as string,
  );

testWithStack(
  "who follows is asked of the users service, and while it is unavailable that is said",
  { service: false, timeoutMs: 60_000 },
  async (stack) => {
    const [users, people] = await startOnOwn(stack, "users");
    const [, api] = await startOnOwn(stack, "posts", { TIMELINE_USER_SERVICE_ADDR: users.grpcAddress });
    await people.follow({ follower_id: "fay", following_id: "ada" });
    const { drop_id } = await api.post("ada", { visibility: Visibility.FOLLOWERS });
    const seen = (viewer_id: string) => codeOf(api.getDrop({ drop_id, revision: 0, viewer_id }));
    expect([await seen("fay"), await seen("ada"), await seen("sam")]).toEqual(["OK", "OK", "NOT_FOUND"]);
    await people.unfollow({ follower_id: "fay", following_id: "ada" });
    expect(await seen("fay")).toBe("NOT_FOUND");
    await users.crash();
    await becomes(async () => expect(await seen("fay")).toBe("UNAVAILABLE"));
    expect(await seen("ada")).toBe("OK");
  },
);

testWithStack(
  "a users service that only lists is enough to say who follows; without one the author alone sees what is for followers",
  { service: false, timeoutMs: 60_000 },
  async (stack) => {
    stack.world.follow("fay", "ada");
    const [, listing] = await startOnOwn(stack, "posts");
    const [, alone] = await startOnOwn(stack, "posts", { TIMELINE_USER_SERVICE_ADDR: "" });
    for (const [api, answers] of [
      [listing, ["OK", "NOT_FOUND", "OK"]],
      [alone, ["NOT_FOUND", "NOT_FOUND", "OK"]],
    ] as const) {
      const { drop_id } = await api.post("ada", { visibility: Visibility.FOLLOWERS });
      const viewers = ["fay", "sam", "ada"];
      const seen = viewers.map((viewer_id) => codeOf(api.getDrop({ drop_id, revision: 0, viewer_id })));
      expect(await Promise.all(seen)).toEqual(answers);
    }
  },
);

testWithStack(
  "a remote drop that is not public reaches the homes of those who may see it, and no shared timeline, rebuilt or not",
  { service: false, timeoutMs: 90_000 },
  async (stack) => {
    const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
    const [service, api] = await startOnOwn(stack, "users,posts,bridge,fanout,api", own);
    const reads = openReader(service.grpcAddress);
    stack.defer(() => reads.close());
    const eve = "https://far.example/users/eve";
    for (const follower_id of ["ada", "bob"]) await api.follow({ follower_id, following_id: eve });
    await becomes(async () => {
      expect((await api.followers({ user_id: eve, page_size: 0, page_token: "" })).total_count).toBe(2);
    });
    const said = {
      public: { to: "as:Public" },
      unlisted: { cc: "as:Public" },
      followers: { to: [`${eve}/followers`] },
      direct: { to: ["bob", "sam"] },
    };
    const uriOf = (name: string) => `https://far.example/notes/${name}`;
    let created_at = Date.now() - 1_000;
    for (const [name, document] of Object.entries(said))
      await api.putRemote({
        ...{ uri: uriOf(name), actor_uri: eve, created_at: created_at++ },
        ...{ visibility: Visibility.UNSPECIFIED, document: JSON.stringify(document) },
      });
    const expected = {
      ada: ["followers", "unlisted", "public"].map(uriOf),
      bob: ["direct", "followers", "unlisted", "public"].map(uriOf),
      sam: [],
    };
    const shown = async () => {
      for (const [user, drops] of Object.entries(expected)) expect((await reads.home(user)).drop_ids).toEqual(drops);
      expect((await reads.global()).drop_ids).toEqual([uriOf("public")]);
      expect((await reads.local()).drop_ids).toEqual([]);
    };
    await becomes(shown);
    expect(await stack.streams.count("DLQ")).toBe(0);
    await stack.redis.flushall();
    await becomes(shown);
    await eventually(async () => (await stack.redis.zcard("timeline:global")) === 2, "global is rebuilt");
  },
);
