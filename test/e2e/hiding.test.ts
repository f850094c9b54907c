import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { type Api, openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes, eventually } from "../support/eventually.js";
import { openReader, type Reader } from "../support/reader.js";
import { openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";

/** What a viewer is shown, with how their pages are judged. */
type Scene = { readonly stack: Stack; readonly api: Api; readonly reads: Reader; readonly url: string };

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const ROLES = "users,posts,bridge,fanout,api,gateway";

/** The service on its own users and posts, in which ada follows bob and cat, and bob follows ada. */
async function openScene(stack: Stack): Promise<Scene> {
  const folder = await temporaryFolder("data");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const service = await stack.start({ roles: ROLES, env: { ...OWN, TIMELINE_DATA_DIR: join(folder, "data") } });
  const api = openApi(service.grpcAddress);
  const reads = openReader(service.grpcAddress);
  stack.defer(() => api.close());
  stack.defer(() => reads.close());
  for (const [follower_id, following_id] of [
    ["ada", "bob"],
    ["ada", "cat"],
    ["bob", "ada"],
  ] as const)
    await api.follow({ follower_id, following_id });
  const followed = async () => (await api.followers({ user_id: "cat", page_size: 0, page_token: "" })).total_count;
  await eventually(async () => (await followed()) === 1, "the follows are in both lists");
  return { stack, api, reads, url: service.httpUrl };
}

/** Resolves once the page has these drops, and is complete. */
const shows = (read: () => ReturnType<Reader["home"]>, ids: readonly string[]) =>
  becomes(async () => expect(await read()).toMatchObject({ drop_ids: ids, degraded: false }));

const home = ({ reads }: Scene, user: string) => reads.home(user, { limit: 100 });
const local = ({ reads }: Scene, user_id: string) => reads.local({ user_id, limit: 100 });

// Invariant 5.
testWithStack(
  "a mute hides drops and reposts on pages and streams, for the one who mutes; once it ends they are back",
  { service: false },
  async (stack) => {
    const scene = await openScene(stack);
    const { api } = scene;
    const post = async (user: string) => (await api.post(user)).drop_id;
    const [bobs, cats, adas] = [await post("bob"), await post("cat"), await post("ada")];
    const { repost_id: repost } = await api.share({ drop_id: bobs, user_id: "cat" });
    await shows(() => home(scene, "ada"), [repost, adas, cats, bobs]);
    await shows(() => local(scene, "ada"), [adas, cats, bobs]);
    const stream = await openEvents(scene.url, "ada");

    await api.mute({ user_id: "ada", target_id: "bob", expires_at: 0, reposts_only: false });
    await shows(() => home(scene, "ada"), [adas, cats]);
    await shows(() => local(scene, "ada"), [adas, cats]);
    expect((await local(scene, "eve")).drop_ids).toEqual([adas, cats, bobs]);
    expect((await local(scene, "")).drop_ids).toEqual([adas, cats, bobs]);
    expect((await home(scene, "bob")).drop_ids).toEqual([adas, bobs]);
    const hidden = await post("bob");
    const heard = await post("cat");
    await eventually(() => stream.drops().includes(heard), "the drop of somebody else on the stream");
    expect(stream.drops()).toEqual([heard]);
    await shows(() => home(scene, "ada"), [heard, adas, cats]);
    await stack.redis.flushall();
    await shows(() => home(scene, "ada"), [heard, adas, cats]);
    await shows(() => local(scene, "ada"), [heard, adas, cats]);

    await api.unmute({ user_id: "ada", target_id: "bob" });
    await shows(() => home(scene, "ada"), [heard, hidden, repost, adas, cats, bobs]);
    await shows(() => local(scene, "ada"), [heard, hidden, adas, cats, bobs]);

    await api.mute({ user_id: "ada", target_id: "cat", expires_at: Date.now() + 3_000, reposts_only: true });
    await shows(() => home(scene, "ada"), [heard, hidden, adas, cats, bobs]);
    await shows(() => home(scene, "ada"), [heard, hidden, repost, adas, cats, bobs]);
    stream.close();
  },
);

// Invariant 5.
testWithStack(
  "a block hides two users from each other and ends their follows; a resume repeats nothing of it",
  { service: false },
  async (stack) => {
    const scene = await openScene(stack);
    const { api, url } = scene;
    const post = async (user: string) => (await api.post(user)).drop_id;
    const first = await openEvents(url, "ada");
    const start = first.lastId();
    const [bobs, cats, adas] = [await post("bob"), await post("cat"), await post("ada")];
    await eventually(() => first.drops().length === 3, "three drops on the stream");
    await shows(() => home(scene, "ada"), [adas, cats, bobs]);
    await shows(() => home(scene, "bob"), [adas, bobs]);

    await api.block({ user_id: "bob", target_id: "ada" });
    await shows(() => home(scene, "ada"), [adas, cats]);
    await shows(() => local(scene, "ada"), [adas, cats]);
    await shows(() => home(scene, "bob"), [bobs]);
    await shows(() => local(scene, "bob"), [cats, bobs]);
    await expect(api.follow({ follower_id: "ada", following_id: "bob" })).rejects.toThrow(/FAILED_PRECONDITION/);
    first.close();
    const again = await openEvents(url, "ada", start);
    const last = await post("cat");
    await eventually(() => again.drops().includes(last), "a new drop on the resumed stream");
    expect([...again.drops()].sort()).toEqual([cats, adas, last].sort());
    again.close();

    await api.unblock({ user_id: "bob", target_id: "ada" });
    await shows(() => local(scene, "ada"), [last, adas, cats, bobs]);
    const { following } = await api.isFollowing({ follower_id: "ada", following_ids: ["bob"] });
    expect([following, (await home(scene, "ada")).drop_ids]).toEqual([[false], [last, adas, cats]]);
    await api.follow({ follower_id: "ada", following_id: "bob" });
    await shows(() => home(scene, "ada"), [last, adas, cats, bobs]);
    expect(await stack.streams.count("DLQ")).toBe(0);
  },
);
