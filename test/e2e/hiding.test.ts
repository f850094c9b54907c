import { expect } from "@jest/globals";
import { type Api, openApi } from "../support/api.js";
import { becomes, eventually } from "../support/eventually.js";
import type { Reader } from "../support/reader.js";
import { openEvents } from "../support/sse.js";
import { type SharedStack, sharedStack } from "../support/stack.js";

/** The service on its own users and posts. */
const onStack = sharedStack({
  roles: "users,posts,bridge,fanout,api,gateway",
  data: true,
  env: { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" },
});

/** Pages of a viewer, with the settings by which they are judged. */
type Scene = {
  readonly stack: SharedStack;
  readonly api: Api;
  /** Posts a drop; yields its id. */
  post(user: string): Promise<string>;
  /** Drops of the test. */
  readonly posted: Set<string>;
};

/** Ada follows bob and cat, and bob follows ada. */
async function openScene(stack: SharedStack): Promise<Scene & Record<"ada" | "bob" | "cat", string>> {
  const { defer, id, service } = stack;
  const api = openApi(service.grpcAddress);
  defer(() => api.close());
  const [ada, bob, cat] = [id("ada"), id("bob"), id("cat")];
  for (const [follower_id, following_id] of [
    [ada, bob],
    [ada, cat],
    [bob, ada],
  ] as const)
    await api.follow({ follower_id, following_id });
  const followed = async () => (await api.followers({ user_id: cat, page_size: 0, page_token: "" })).total_count;
  await eventually(async () => (await followed()) === 1, "the follows are in both lists");
  const posted = new Set<string>();
  const post = async (user: string): Promise<string> => {
    const { drop_id } = await api.post(user);
    posted.add(drop_id);
    return drop_id;
  };
  return { stack, api, post, posted, ada, bob, cat };
}

/** Resolves once the page has these drops, and is complete. */
const shows = (read: () => ReturnType<Reader["home"]>, ids: readonly string[]) =>
  becomes(async () => expect(await read()).toMatchObject({ drop_ids: ids, degraded: false }));

const home = ({ stack }: Scene, user: string) => stack.reads.home(user, { limit: 100 });

/** Local, which the tests share, without the drops of others. */
async function local({ stack, posted }: Scene, user_id: string) {
  const page = await stack.reads.local({ user_id, limit: 100 });
  return { ...page, drop_ids: page.drop_ids.filter((id) => posted.has(id)) };
}

// Invariant 5.
onStack(
  "a mute hides drops and reposts on pages and streams, for the one who mutes; once it ends they are back",
  async (stack) => {
    const scene = await openScene(stack);
    const { api, post, ada, bob, cat } = scene;
    const [bobs, cats, adas] = [await post(bob), await post(cat), await post(ada)];
    const { repost_id: repost } = await api.share({ drop_id: bobs, user_id: cat });
    // The repost covers what it repeats, until it is hidden itself.
    await shows(() => home(scene, ada), [repost, adas, cats]);
    await shows(() => local(scene, ada), [adas, cats, bobs]);
    const stream = await openEvents(stack.service.httpUrl, ada);

    await api.mute({ user_id: ada, target_id: bob, expires_at: 0, reposts_only: false });
    await shows(() => home(scene, ada), [adas, cats]);
    await shows(() => local(scene, ada), [adas, cats]);
    expect((await local(scene, stack.id("eve"))).drop_ids).toEqual([adas, cats, bobs]);
    expect((await local(scene, "")).drop_ids).toEqual([adas, cats, bobs]);
    expect((await home(scene, bob)).drop_ids).toEqual([adas, bobs]);
    const hidden = await post(bob);
    const heard = await post(cat);
    await eventually(() => stream.drops().includes(heard), "the drop of somebody else on the stream");
    expect(stream.drops()).toEqual([heard]);
    await shows(() => home(scene, ada), [heard, adas, cats]);
    await stack.redis.flushall();
    await shows(() => home(scene, ada), [heard, adas, cats]);
    await shows(() => local(scene, ada), [heard, adas, cats]);

    await api.unmute({ user_id: ada, target_id: bob });
    await shows(() => home(scene, ada), [heard, hidden, repost, adas, cats]);
    await shows(() => local(scene, ada), [heard, hidden, adas, cats, bobs]);

    await api.mute({ user_id: ada, target_id: cat, expires_at: Date.now() + 3_000, reposts_only: true });
    await shows(() => home(scene, ada), [heard, hidden, adas, cats, bobs]);
    await shows(() => home(scene, ada), [heard, hidden, repost, adas, cats]);
    stream.close();
  },
);

// Invariant 5.
onStack(
  "a block hides two users from each other and ends their follows; a resume repeats nothing of it",
  async (stack) => {
    const scene = await openScene(stack);
    const { api, post, ada, bob, cat } = scene;
    const url = stack.service.httpUrl;
    const first = await openEvents(url, ada);
    const start = first.lastId();
    const [bobs, cats, adas] = [await post(bob), await post(cat), await post(ada)];
    await eventually(() => first.drops().length === 3, "three drops on the stream");
    await shows(() => home(scene, ada), [adas, cats, bobs]);
    await shows(() => home(scene, bob), [adas, bobs]);

    await api.block({ user_id: bob, target_id: ada });
    await shows(() => home(scene, ada), [adas, cats]);
    await shows(() => local(scene, ada), [adas, cats]);
    await shows(() => home(scene, bob), [bobs]);
    await shows(() => local(scene, bob), [cats, bobs]);
    await expect(api.follow({ follower_id: ada, following_id: bob })).rejects.toThrow(/FAILED_PRECONDITION/);
    first.close();
    const again = await openEvents(url, ada, start);
    const last = await post(cat);
    await eventually(() => again.drops().includes(last), "a new drop on the resumed stream");
    expect([...again.drops()].sort()).toEqual([cats, adas, last].sort());
    again.close();

    await api.unblock({ user_id: bob, target_id: ada });
    await shows(() => local(scene, ada), [last, adas, cats, bobs]);
    const { following } = await api.isFollowing({ follower_id: ada, following_ids: [bob] });
    expect([following, (await home(scene, ada)).drop_ids]).toEqual([[false], [last, adas, cats]]);
    await api.follow({ follower_id: ada, following_id: bob });
    await shows(() => home(scene, ada), [last, adas, cats, bobs]);
    expect(await stack.streams.count("DLQ")).toBe(0);
  },
);
