import { expect } from "@jest/globals";
import { jsonOf } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, related, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const OPTIONS = { env: { TIMELINE_FANOUT_PULL_THRESHOLD: "3", TIMELINE_FANOUT_CHUNK_SIZE: "2" }, timeoutMs: 180_000 };
const AUTHOR_KEY = "timeline:author:ada";
const FOLLOWERS = ["f0", "f1", "f2", "f3", "f4"];

type Row = { readonly author_id: string; readonly state: string; readonly by: string };

/** `events`: in the log with it. */
async function post({ world, publish, streams }: Stack, events: number, drop_id: string): Promise<void> {
  const drop = { drop_id, user_id: "ada", visibility: "public", created_at: Date.now() } as const;
  world.post(drop);
  await publish(created(drop));
  await streams.settledWith(events);
}

const becomes = ({ redis }: Stack, state: string) =>
  eventually(async () => (await redis.hget("timeline:x:pulled", "ada"))?.split(":")[0] === state, `ada is ${state}`);

// Invariant 3.
testWithStack(
  "an author crosses both ways while the process that promotes is killed: homes show every drop once, and none that is deleted or unfollowed",
  { ...OPTIONS, service: false },
  async (stack) => {
    const { world, publish, redis } = stack;
    for (const follower of FOLLOWERS) world.follow(follower, "ada");
    const dying = await stack.start({ env: { AVION_TEST_FAILPOINTS: "crossing=kill@promoting" } });
    await post(stack, 1, "d1");
    await dying.exited;
    const { grpcAddress, httpUrl } = await stack.start();
    const reads = openReader(grpcAddress);
    stack.defer(() => reads.close());
    const pageOf = async (user: string) => {
      const { drop_ids, degraded } = await reads.home(user);
      return degraded ? "degraded" : drop_ids;
    };
    const stream = await openEvents(httpUrl, "f4");
    await becomes(stack, "pulled");
    expect(await jsonOf<Row[]>(stack, ["author", "ls"])).toMatchObject([
      { author_id: "ada", state: "pulled", by: "count" },
    ]);
    // The second bridge admits the five follows, of which no event told.
    await post(stack, 7, "d2");
    expect((await held(redis, homeKey("f0"))).entries.map(([id]) => id)).toEqual(["d1"]);
    for (const follower of FOLLOWERS) expect(await pageOf(follower)).toEqual(["d2", "d1"]);
    await eventually(() => stream.drops().includes("d2"), "f4 is notified");

    world.follow("late", "ada", 7);
    world.unfollow("f0", "ada", 7);
    await publish(followed("late", "ada", 7), unfollowed("f0", "ada", 7));
    await eventually(async () => (await pageOf("late")).length === 2, "the new follower sees the drops");
    await eventually(async () => (await pageOf("f0")).length === 0, "the old follower sees none");
    world.remove("d1");
    await publish(deleted("d1", "ada"));
    await eventually(async () => (await pageOf("f1")).length === 1, "the deleted drop is gone");

    expect(await jsonOf<Row>(stack, ["author", "push", "ada"])).toMatchObject({ state: "demoting", by: "hand" });
    await becomes(stack, "pushed");
    for (const follower of ["late", "f1", "f2"])
      expect((await held(redis, homeKey(follower))).entries.map(([id]) => id)).toEqual(["d2"]);
    expect(await jsonOf<Row>(stack, ["author", "auto", "ada"])).toMatchObject({ state: "pushed", by: "count" });
    await post(stack, 11, "d3");
    expect(await pageOf("late")).toEqual(["d3", "d2"]);
    stream.close();
  },
);

// Invariant 2.
testWithStack(
  "a worker is killed between the write of a pulled drop and its notifications: another one notifies each listening follower once",
  { ...OPTIONS, service: false },
  async (stack) => {
    const { world } = stack;
    for (const follower of FOLLOWERS) world.follow(follower, "ada");
    const { httpUrl } = await stack.start({ roles: "bridge,gateway" });
    const dying = await stack.start({ roles: "fanout", env: { AVION_TEST_FAILPOINTS: "written=kill@d2" } });
    await post(stack, 1, "d1");
    await becomes(stack, "pulled");
    const [follower, stranger] = await Promise.all(["f4", "eve"].map((user) => openEvents(httpUrl, user)));
    const drop = { drop_id: "d2", user_id: "ada", visibility: "public", created_at: Date.now() } as const;
    world.post(drop);
    await stack.publish(created(drop));
    await dying.exited;
    await stack.start({ roles: "fanout" });
    await post(stack, 3, "d3");
    await eventually(() => follower?.drops().includes("d3") ?? false, "f4 is notified of the last drop");
    expect([follower?.drops().toSorted(), stranger?.drops()]).toEqual([["d2", "d3"], []]);
    follower?.close();
    stranger?.close();
  },
);

testWithStack(
  "an audit looks at what readers of a pulled author see; --fix and a rebuild of all mend the author's timeline",
  { ...OPTIONS, env: { ...OPTIONS.env, TIMELINE_AUDIT_SETTLE_MS: "300" } },
  async (stack) => {
    const { world, redis, reads } = stack;
    const expectPages = async (drops: readonly string[]): Promise<void> => {
      for (const follower of FOLLOWERS) expect((await reads.home(follower)).drop_ids).toEqual(drops);
    };
    for (const follower of FOLLOWERS) world.follow(follower, "ada");
    await post(stack, 1, "d1");
    await becomes(stack, "pulled");
    await expectPages(["d1"]);
    for (const number of [2, 3]) await post(stack, number, `d${number}`);
    await expectPages(["d3", "d2", "d1"]);
    const right = await held(redis, AUTHOR_KEY);
    expect(right.entries.map(([id]) => id)).toEqual(["d3", "d2", "d1"]);
    const spoil = async (): Promise<void> => {
      await redis.zrem(AUTHOR_KEY, "d2");
      await redis.zadd(AUTHOR_KEY, Date.now() - 60_000, "never");
    };

    const args = ["audit", "--user", "f1", "f2"];
    expect(await jsonOf<unknown>(stack, args)).toMatchObject({ users: 2, differ: 0 });
    await spoil();
    expect(await jsonOf<unknown>(stack, [...args, "--fix"])).toMatchObject({
      differences: ["f1", "f2"].map((user) => ({ user, missing: ["d2"], unexpected: ["never"] })),
      remaining: [],
    });
    expect(await held(redis, AUTHOR_KEY)).toEqual(right);
    await spoil();
    await jsonOf<unknown>(stack, ["timeline", "rebuild", "--all"]);
    expect(await held(redis, AUTHOR_KEY)).toEqual(right);
  },
);

// Invariant 5.
testWithStack(
  "an audit finds nothing in homes whose users hide a pulled author, or whom the author reposts",
  { ...OPTIONS, env: { ...OPTIONS.env, TIMELINE_AUDIT_SETTLE_MS: "0" } },
  async (stack) => {
    const { world, publish, reads, streams } = stack;
    for (const follower of FOLLOWERS) world.follow(follower, "ada");
    await post(stack, 1, "d1");
    await becomes(stack, "pulled");
    await post(stack, 2, "d2");
    const repost = { drop_id: "d3", user_id: "ada", visibility: "public", created_at: Date.now() } as const;
    const of = { repost_of: "d0", repost_author: "bob" };
    world.post({ ...repost, ...of });
    world.mute("f0", "ada");
    world.block("f1", "bob");
    await publish(
      created({ ...repost, ...of }),
      related("user_muted", "f0", "ada"),
      related("user_blocked", "f1", "bob"),
    );
    await streams.settledWith(5);
    for (const [user, drop_ids] of Object.entries({ f0: [], f1: ["d2", "d1"], f2: ["d3", "d2", "d1"] }))
      expect(await reads.home(user)).toMatchObject({ drop_ids, degraded: false });
    const audited = await jsonOf<{ differences: unknown[] }>(stack, ["audit", "--user", "f0", "f1", "f2"]);
    expect(audited.differences).toEqual([]);
    for (const [drop, why] of Object.entries({ d1: "pages hide it", d3: "pages hide it" }))
      expect(await jsonOf(stack, ["timeline", "explain", "f0", drop])).toMatchObject({
        verdict: "left-out",
        why: expect.stringContaining(why),
      });
  },
);

// Invariant 8.
testWithStack(
  "while the registry of pulled authors has a state that only a newer version knows, events wait and spend no attempt",
  { env: { TIMELINE_MAX_ATTEMPTS: "2", TIMELINE_RETRY_BASE_MS: "50" } },
  async ({ world, publish, redis, streams, service: { httpUrl } }) => {
    await redis.hset("timeline:x:pulled", { ada: "later:count:1", "~version": 2, "~born": 1 });
    const metrics = async () => (await fetch(`${httpUrl}/metrics`)).text();
    await eventually(async () => /^timeline_pulled_authors\S* NaN$/m.test(await metrics()), "the old copy is not used");
    const drop = { drop_id: "d1", user_id: "bob", visibility: "public", created_at: Date.now() } as const;
    world.post(drop);
    await publish(created(drop));
    const waits = /^timeline_deliveries_total\{[^}]*outcome="waited"[^}]*\} [1-9]/m;
    await eventually(
      async () => waits.test(await metrics()) || (await streams.count("DLQ")) > 0,
      "the event is held or given up",
    );
    expect(await streams.count("DLQ")).toBe(0);
    await redis.hset("timeline:x:pulled", { ada: "pulled:count:1", "~version": 3 });
    await streams.settledWith(1);
    expect((await held(redis, homeKey("bob"))).entries.map(([id]) => id)).toEqual(["d1"]);
    expect(await streams.count("DLQ")).toBe(0);
  },
);
