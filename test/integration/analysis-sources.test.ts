import { status } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { measure } from "../../src/analysis/measures.js";
import { createAtprotoSource } from "../../src/analysis/sources/atproto.http.js";
import { createPostsSource } from "../../src/analysis/sources/posts.grpc.js";
import type { Source } from "../../src/analysis/sources/source.js";
import { Visibility } from "../../src/gen/avion/posts.js";
import { MINUTE } from "../../src/kernel/time.js";
import { connectUpstreams } from "../../src/upstreams/upstreams.grpc.js";
import { openBucket, outcome, readPosts } from "../support/analysis-sources.js";
import { startAppView } from "../support/appview.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { post, startPosts } from "../support/posts.js";
import { startUpstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

const NOW = Date.now();

interface Harness {
  readonly source: Source;
  /** Newest first, a minute apart; the n-th has n likes, 2n shares and 3n replies. */
  post(account: string, count: number): void;
  /** Without an account all calls fail. */
  breakFor(account?: string): () => void;
  /** Nobody listens there any more. */
  goAway(): Promise<void>;
  stop(): Promise<void>;
}

interface Adapter {
  readonly name: string;
  account(name: string): string;
  start(): Promise<Harness>;
}

const ATPROTO: Adapter = {
  name: "the AT Protocol",
  account: (name) => `did:plc:${name}`,
  async start() {
    const view = await startAppView();
    return {
      source: createAtprotoSource({ url: view.url, bucket: openBucket().bucket }),
      post: (did, count) => {
        for (let n = 0; n < count; n++)
          view.post(did, { createdAt: NOW - n * MINUTE, likes: n, shares: 2 * n, replies: 3 * n });
        if (count === 0) view.post(did);
      },
      breakFor: (did) => view.inject({ ...(did && { did }), kind: 500 }),
      goAway: view.stop,
      stop: view.stop,
    };
  },
};

const POSTS: Adapter = {
  name: "the posts service",
  account: (name) => name,
  async start() {
    const world = new World();
    const served = await startUpstreams(world);
    const addresses = { userServiceAddr: served.usersAddress, postServiceAddr: served.postsAddress };
    const upstreams = connectUpstreams({ ...addresses, tls: {} });
    return {
      source: createPostsSource(upstreams, upstreams),
      post: (user_id, count) => {
        if (count === 0) world.addProfile(user_id);
        for (let n = 0; n < count; n++) {
          const counts = { likes: n, shares: 2 * n, replies: 3 * n };
          world.post({ drop_id: `${user_id}-${n}`, user_id, created_at: NOW - n * MINUTE, counts });
        }
      },
      breakFor: (user) => served.inject({ ...(user && { user }), code: status.INTERNAL }),
      goAway: served.stop,
      stop: async () => {
        upstreams.close();
        await served.stop();
      },
    };
  },
};

describe.each([ATPROTO, POSTS])("$name", ({ account, start }) => {
  const [ada, anna, arno] = ["ada", "anna", "arno"].map(account) as [string, string, string];
  const started: Harness[] = [];
  const fresh = async (): Promise<Harness> => {
    const harness = await start();
    started.push(harness);
    return harness;
  };
  afterAll(async () => void (await Promise.all(started.map(({ stop }) => stop()))));

  test("posts are read newest first over several pages, with their counts, and no more than asked for", async () => {
    const { source, post } = await fresh();
    post(ada, 530);
    const posts = await readPosts(source, ada);
    expect(posts).toHaveLength(500);
    expect(posts[0]).toEqual({ createdAt: NOW, likes: 0, shares: 0, replies: 0, quotes: 0 });
    expect(posts[499]).toEqual({ createdAt: NOW - 499 * MINUTE, likes: 499, shares: 998, replies: 1_497, quotes: 0 });
    expect(posts.map(({ createdAt }) => createdAt)).toEqual(posts.map((_, n) => NOW - n * MINUTE));
    expect(await readPosts(source, ada, { limit: 7 })).toEqual(posts.slice(0, 7));
  });

  test("an account without posts is a result", async () => {
    const { source, post } = await fresh();
    post(ada, 0);
    expect(await readPosts(source, ada)).toEqual([]);
  });

  // Invariant 8.
  test("an account that fails alone has failed, again and again, while others are answered", async () => {
    const { source, post, breakFor } = await fresh();
    post(ada, 1);
    post(arno, 2);
    post(anna, 3);
    expect(await outcome(source, ada)).toBe("1 posts");
    const heal = breakFor(anna);
    for (let call = 0; call < 4; call++) expect(await outcome(source, anna)).toBe("failed");
    expect(await outcome(source, arno)).toBe("2 posts");
    heal();
    expect(await outcome(source, anna)).toBe("3 posts");
  });

  // Invariant 8.
  test("if most accounts fail it is an outage, which ends once they are answered", async () => {
    const { source, post, breakFor } = await fresh();
    for (const name of [ada, anna, arno]) post(name, 1);
    expect(await outcome(source, ada)).toBe("1 posts");
    const heal = breakFor();
    for (const name of [anna, arno, ada]) expect(await outcome(source, name)).toBe("unavailable");
    heal();
    for (const name of [anna, arno, ada]) expect(await outcome(source, name)).toBe("1 posts");
  });

  test("a source that cannot be reached is an outage at the first call", async () => {
    const { source, post, goAway } = await fresh();
    post(ada, 1);
    await goAway();
    expect(await outcome(source, ada)).toBe("unavailable");
  });

  test("a process that stops ends the read as an outage does, and never with a part of the posts", async () => {
    const { source, post } = await fresh();
    post(ada, 530);
    expect(await outcome(source, ada, { signal: AbortSignal.abort() })).toBe("unavailable");
  });
});

describe("a user of ours", () => {
  const world = new World();
  let served: Awaited<ReturnType<typeof startUpstreams>>;
  let upstreams: ReturnType<typeof connectUpstreams>;
  let source: Source;
  beforeAll(async () => {
    served = await startUpstreams(world);
    const addresses = { userServiceAddr: served.usersAddress, postServiceAddr: served.postsAddress };
    upstreams = connectUpstreams({ ...addresses, tls: {} });
    source = createPostsSource(upstreams, upstreams);
    world.addProfile("silent");
    world.post({ drop_id: "secret", user_id: "private", created_at: NOW, visibility: "direct", recipients: [] });
    world.follow("listed", "followed");
  });
  afterAll(async () => {
    upstreams.close();
    await served.stop();
  });

  test("is known by a drop or a profile, and otherwise unknown, however many are made up", async () => {
    expect(await outcome(source, "silent")).toBe("0 posts");
    expect(await outcome(source, "private")).toBe("0 posts");
    const made = Array.from({ length: 20 }, (_, n) => outcome(source, `made-up-${n}`));
    expect(new Set(await Promise.all(made))).toEqual(new Set(["account_unknown"]));
    expect(await outcome(source, "followed")).toBe("account_unknown");
    expect(await outcome(createPostsSource(upstreams, undefined), "silent")).toBe("account_unknown");
  });

  test("of a UserService without profiles is known by a follow", async () => {
    const heal = served.inject({ method: "GetProfile", code: status.UNIMPLEMENTED });
    for (const user of ["listed", "followed", "private"]) expect(await outcome(source, user)).toBe("0 posts");
    for (const user of ["made-up", "nobody"]) expect(await outcome(source, user)).toBe("account_unknown");
    heal();
  });

  test("waits while UserService is unavailable", async () => {
    const heal = served.inject({ method: "GetProfile", code: status.UNAVAILABLE });
    expect(await outcome(source, "silent")).toBe("unavailable");
    heal();
    expect(await outcome(source, "silent")).toBe("0 posts");
  });

  test("whom PostService answers with NOT_FOUND is unknown", async () => {
    const heal = served.inject({ method: "GetDropsByUserID", code: status.NOT_FOUND });
    for (const user of ["made-up", "nobody", "no one"]) expect(await outcome(source, user)).toBe("account_unknown");
    heal();
  });

  test("has results without counts where PostService does not count", async () => {
    const heal = served.inject({ method: "GetCounts", code: status.UNIMPLEMENTED });
    for (const user_id of ["grace", "hal", "iris", "jan"]) {
      world.post({ drop_id: `${user_id}-1`, user_id, created_at: NOW });
      const read = source.posts(user_id, { user: "ada", limit: 500, signal: new AbortController().signal });
      const results = await measure(read, { measures: ["flow", "clout", "kudos"], now: NOW });
      expect(results).toMatchObject({ posts: 1, flow: { hours: expect.any(Array) } });
      expect(new Set(Object.values({ ...results.clout, ...results.kudos }))).toEqual(new Set([null]));
    }
    heal();
  });
});

test("of our own drops those that are public or unlisted and no reposts are read, with what is counted", async () => {
  const server = await DATABASES[0]?.start();
  const service = await startPosts(await (server as DatabaseServer).newDatabase());
  const upstreams = connectUpstreams({ userServiceAddr: service.address, postServiceAddr: service.address, tls: {} });
  try {
    const liked = await post(service, { user_id: "ada", visibility: Visibility.PUBLIC });
    await post(service, { user_id: "ada", visibility: Visibility.UNLISTED, reply_to: liked });
    await post(service, { user_id: "ada", visibility: Visibility.FOLLOWERS });
    await post(service, { user_id: "ada", visibility: Visibility.DIRECT, recipients: ["bob"] });
    const gone = await post(service, { user_id: "ada", visibility: Visibility.PUBLIC });
    await service.call.deleteDrop({ drop_id: gone, user_id: "ada" });
    for (const user_id of ["bob", "eve"]) await service.call.likeDrop({ drop_id: liked, user_id });
    for (const user_id of ["ada", "bob"]) await service.call.shareDrop({ drop_id: liked, user_id });
    await service.countAll();
    const counts = { likes: 0, shares: 0, replies: 0, quotes: 0 };
    expect(await readPosts(createPostsSource(upstreams, undefined), "ada")).toEqual([
      { createdAt: expect.any(Number), ...counts },
      { createdAt: expect.any(Number), ...counts, likes: 2, shares: 2, replies: 1 },
    ]);
  } finally {
    upstreams.close();
    await service.stop();
    await server?.stop();
  }
});
