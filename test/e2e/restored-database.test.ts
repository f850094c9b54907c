import { randomUUID } from "node:crypto";
import { expect } from "@jest/globals";
import { listReader } from "../../src/contracts/lists.js";
import { jsonOf, startCommand } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { samplesOf } from "../support/scrape.js";
import { openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, received, unfollowed } from "../support/timeline-events.js";

const READERS = ["reader-0", "reader-1", "reader-2"];
const OPTIONS = { env: { TIMELINE_AUDIT_SETTLE_MS: "1000" }, timeoutMs: 120_000 };
const TRUTH = ["recover", "--database-is-the-truth"];

type Recovered = {
  readonly drops: number;
  readonly edges: number;
  readonly not_judged: number;
  readonly revived: readonly string[];
  readonly undone: boolean;
};

/** Posts and publishes drops of two authors, in turn. */
async function post({ world, publish }: Stack, name: string, count: number): Promise<string[]> {
  const drops = Array.from({ length: count }, (_, at) => ({
    drop_id: `${name}-${at}`,
    user_id: at % 2 === 0 ? "alice" : "anna",
    visibility: "public" as const,
    created_at: Date.now() - 1_000 + at,
  }));
  world.post(...drops);
  await publish(...drops.map(created));
  return drops.map(({ drop_id }) => drop_id);
}

const metric = async ({ service }: Stack, name: string): Promise<number | undefined> =>
  samplesOf(await (await fetch(`${service.httpUrl}/metrics`)).text()).find((one) => one.name === name)?.value;

// Invariant 5.
testWithStack(
  "a database that is older than the log degrades pages and is named; one command makes all timelines what it says",
  OPTIONS,
  async (stack) => {
    const { world, publish, streams, reads, service, redis } = stack;
    for (const reader of READERS)
      for (const author of ["alice", "anna"]) await publish(followed(reader, author, world.follow(reader, author)));
    const before = await post(stack, "before", 12);
    await streams.settledWith(18);
    const restore = world.backup();
    // The backup does not have these: drops, a deletion, two changes of follows.
    const phantoms = await post(stack, "lost", 9);
    world.remove("before-3");
    await publish(
      deleted("before-3", "anna"),
      followed("reader-0", "bob", world.follow("reader-0", "bob", 7)),
      unfollowed("reader-1", "alice", world.unfollow("reader-1", "alice", 5)),
      received({ drop_id: "https://far.example/1", created_at: Date.now(), user_id: "far" }),
    );
    await streams.settledWith(31);
    for (const reader of READERS) expect((await reads.home(reader)).degraded).toBe(false);
    const heard = await openEvents(service.httpUrl, "reader-2");
    stack.defer(() => heard.close());
    restore();
    await eventually(async () => (await reads.home("reader-2")).degraded, "pages say so", 30_000);
    for (const read of [reads.local, reads.global]) expect((await read()).degraded).toBe(true);
    expect(service.output()).toMatch(/"level":"error"[^\n]*run `avion-timeline recover --database-is-the-truth`/);
    await becomes(async () => expect(await metric(stack, "timeline_upstreams_behind")).toBe(1));
    // People go on.
    const after = await post(stack, "after", 4);
    await streams.settledWith(35);

    const found = { drops: 9, edges: 2, not_judged: 0, revived: ["before-3"] };
    const dry = await jsonOf<Recovered>(stack, [...TRUTH, "--dry-run"]);
    expect(dry).toMatchObject({ ...found, undone: false });
    expect(await jsonOf<Recovered>(stack, TRUTH)).toMatchObject({ ...found, undone: true });
    await eventually(() => heard.events.filter(({ event }) => event === "drop_deleted").length === 9, "listeners hear");
    const remote = "https://far.example/1";
    const own = [...after].reverse().concat([...before].reverse().filter((drop) => drop !== "before-3"));
    await eventually(async () => !(await reads.home("reader-2")).degraded, "pages are whole", 30_000);
    await becomes(async () => expect(await metric(stack, "timeline_upstreams_behind")).toBe(0));
    const expectTruth = async (): Promise<void> => {
      for (const reader of READERS) {
        const wanted = world.homeOf(reader).filter(({ drop_id }) => drop_id !== "before-3");
        const page = await reads.home(reader, { limit: 100 });
        expect(page).toMatchObject({ drop_ids: wanted.map(({ drop_id }) => drop_id), degraded: false });
      }
      expect((await reads.local({ limit: 100 })).drop_ids).toEqual(own);
      const shown = (await reads.global({ limit: 100 })).drop_ids;
      expect(shown.filter((drop) => drop !== remote)).toEqual(own);
      expect(shown).toContain(remote);
    };
    await expectTruth();
    expect(phantoms).toHaveLength(9);

    // Nothing brings them back: neither a replay, nor a Redis that lost everything.
    expect((await jsonOf<{ applied: number }>(stack, ["replay", "--from", "1h"])).applied).toBeGreaterThan(20);
    await expectTruth();
    await redis.flushall();
    await becomes(expectTruth);
    // Versions that are lower than what the log had are taken.
    await publish(unfollowed("reader-1", "alice", world.unfollow("reader-1", "alice", 3)));
    await publish(followed("reader-0", "bob", world.follow("reader-0", "bob", 2)));
    world.post({ drop_id: "bob's", user_id: "bob", created_at: Date.now() });
    await publish(created({ drop_id: "bob's", user_id: "bob", visibility: "public", created_at: Date.now() }));
    await becomes(async () => expect((await reads.home("reader-0")).drop_ids[0]).toBe("bob's"));
    await becomes(async () =>
      expect((await reads.home("reader-1", { limit: 100 })).drop_ids).toEqual(
        world
          .homeOf("reader-1")
          .filter(({ drop_id }) => drop_id !== "before-3")
          .map(({ drop_id }) => drop_id),
      ),
    );
  },
);

// Invariant 5.
testWithStack(
  "follows that the upstreams have lost with a restore degrade pages and are undone; members of lists are no follows",
  OPTIONS,
  async (stack) => {
    const { world, publish, streams, reads } = stack;
    const fans = Array.from({ length: 4 }, (_, at) => `fan-${at}`);
    for (const fan of fans) await publish(followed(fan, "alice", world.follow(fan, "alice")));
    await post(stack, "before", 4);
    world.post({ drop_id: "bob's", user_id: "bob", created_at: Date.now() });
    await publish(created({ drop_id: "bob's", user_id: "bob", visibility: "public", created_at: Date.now() }));
    // The users service lists no members of lists as follows.
    for (const reader of [randomUUID(), randomUUID()].map(listReader))
      await publish(...["alice", "bob", "carol"].map((member, at) => followed(reader, member, at + 1)));
    await streams.settledWith(15);
    const restore = world.backup();
    for (const fan of fans) await publish(followed(fan, "bob", world.follow(fan, "bob", 9)));
    await streams.settledWith(19);
    for (const fan of fans)
      expect(await reads.home(fan)).toMatchObject({ drop_ids: ["bob's", "before-2", "before-0"] });
    restore();
    await eventually(async () => (await reads.home("fan-0")).degraded, "pages say so");
    expect(await jsonOf<Recovered>(stack, TRUTH)).toMatchObject({ drops: 0, edges: 4, undone: true });
    await eventually(async () => !(await reads.home("fan-0")).degraded, "pages are whole");
    for (const fan of fans) expect(await reads.home(fan)).toMatchObject({ drop_ids: ["before-2", "before-0"] });
  },
);

// Invariant 5.
testWithStack(
  "drops that the upstreams never had, of a user who is gone or of upstreams that know none, are no restore",
  { ...OPTIONS, slow: true },
  async (stack) => {
    const { world, publish, streams, reads, service } = stack;
    const drop = (drop_id: string, user_id = "nobody") =>
      ({ drop_id, user_id, visibility: "public", created_at: Date.now() }) as const;
    // The upstreams know nothing of what is published by hand.
    await publish(...Array.from({ length: 12 }, (_, at) => created(drop(`by-hand-${at}`))));
    await streams.settled(12);
    // Drops of a user who is gone lie between those of others.
    const mixed = Array.from({ length: 30 }, (_, at) => drop(`mixed-${at}`, at % 3 === 0 ? "gone" : "alice"));
    world.post(...mixed.filter(({ user_id }) => user_id === "alice"));
    await publish(...mixed.map(created));
    await streams.settled(42);
    await looks(stack, 4);
    expect((await reads.local()).degraded).toBe(false);
    expect(service.output()).not.toMatch(/recover --database-is-the-truth/);
    const refused = startCommand(stack, [...TRUTH, "--json"], {
      TIMELINE_POST_SERVICE_ADDR: stack.upstreams.postsAddress,
    });
    // By hand it deletes what it is told to.
    expect((await refused.exited).code).toBe(0);
    await becomes(async () => expect((await reads.local({ limit: 100 })).drop_ids).toHaveLength(20));
  },
);

/** Waits for so many more looks at the log. */
async function looks({ upstreams }: Stack, count: number): Promise<void> {
  const before = upstreams.calls("GetDropsByUserID", "alice");
  await eventually(() => upstreams.calls("GetDropsByUserID", "alice") >= before + 10 * count, "it has looked", 30_000);
}

// Invariant 5.
testWithStack(
  "where the upstreams know no drop of the log at all, the command deletes nothing unless it is forced",
  { ...OPTIONS, slow: true },
  async (stack) => {
    await stack.publish(
      created({ drop_id: "by-hand", user_id: "nobody", visibility: "public", created_at: Date.now() }),
    );
    await stack.streams.settled(1);
    expect(await jsonOf<Recovered>(stack, TRUTH, { code: 1 })).toMatchObject({ drops: 1, undone: false });
    expect((await stack.reads.local()).drop_ids).toEqual(["by-hand"]);
    expect(await jsonOf<Recovered>(stack, [...TRUTH, "--force"])).toMatchObject({ drops: 1, undone: true });
    expect((await stack.reads.local()).drop_ids).toEqual([]);
  },
);
