import { expect } from "@jest/globals";
import { jsonOf, startCommand } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { expectTimelines } from "../support/oracle.js";
import { openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { homeKey } from "../support/timeline-keys.js";

const READERS = Array.from({ length: 12 }, (_, number) => `reader-${number}`);
const EVERYBODY = ["alice", ...READERS];
/** Pages of five followers: alice's audience is queued in chunks. */
const OPTIONS = { env: { TIMELINE_FANOUT_CHUNK_SIZE: "5" }, timeoutMs: 90_000 };

type Replayed = { readonly applied: number; readonly left_out: readonly unknown[]; readonly complete: boolean };

/** Drops, deletions and an unfollow, applied; returns what happened, the follows aside. */
async function history(stack: Stack, count: number): Promise<TimelineEvent[]> {
  const { world, streams } = stack;
  for (const reader of READERS) world.follow(reader, "alice");
  const now = Date.now();
  const drops = Array.from({ length: count }, (_, number) => ({
    drop_id: `d-${number}`,
    user_id: "alice",
    visibility: "public" as const,
    created_at: now - 1_000 + number,
  }));
  world.post(...drops);
  await stack.publish(...drops.map(created));
  await streams.settled(count);
  world.remove("d-3");
  const gone = [deleted("d-3", "alice"), unfollowed("reader-1", "alice", world.unfollow("reader-1", "alice"))];
  await stack.publish(...gone);
  await streams.settled(count + gone.length);
  return [...drops.map(created), ...gone];
}

const expectWhole = (stack: Stack, events: readonly TimelineEvent[]): Promise<void> =>
  expectTimelines(stack.redis, EVERYBODY, [...READERS.map((reader) => followed(reader, "alice", 1)), ...events]);

/** Loses every timeline. */
async function lose({ redis }: Stack): Promise<void> {
  await redis.del("timeline:local", "timeline:global", ...EVERYBODY.map(homeKey));
}

async function replaysKept({ streams }: Stack): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of streams.manager.consumers.list("DROPS")) names.push(name);
  return names.filter((name) => name.startsWith("replay-"));
}

testWithStack(
  "a replay restores lost entries, twice with the same result, and notifies nobody",
  OPTIONS,
  async (stack) => {
    const { redis, service, streams } = stack;
    const events = await history(stack, 30);
    await expectWhole(stack, events);
    const stream = await openEvents(service.httpUrl, "reader-0");
    await redis.zrem("timeline:local", "d-5", "d-6");
    await redis.zrem(homeKey("reader-0"), "d-1", "d-29");
    await redis.del(...READERS.slice(2).map(homeKey));
    const told = await streams.count("NOTIFY");
    for (let round = 0; round < 2; round += 1) {
      expect(await jsonOf<Replayed>(stack, ["replay", "--from", "15m"])).toMatchObject({
        applied: events.length,
        left_out: [],
        complete: true,
      });
      await expectWhole(stack, events);
    }
    expect(await replaysKept(stack)).toEqual([]);
    expect(await streams.count("NOTIFY")).toBe(told);
    // Whatever had been sent before this one would have arrived before it.
    const last = { drop_id: "last", user_id: "alice", visibility: "public", created_at: Date.now() } as const;
    stack.world.post(last);
    await stack.publish(created(last));
    await stream.waitFor("new_drop");
    expect(stream.events.map(({ data }) => data.drop_id)).toEqual(["last"]);
    stream.close();
  },
);

testWithStack("only events admitted in the range are applied", OPTIONS, async (stack) => {
  const events = await history(stack, 10);
  const { manager } = stack.streams;
  const at = async (seq: number): Promise<string> =>
    (await manager.streams.getMessage("DROPS", { seq })).time.toISOString();
  const edge = await at(11);
  await lose(stack);
  const from = new Date(Date.now() - 60_000).toISOString();
  const first = await jsonOf<Replayed>(stack, ["replay", "--from", from, "--to", edge]);
  expect(first.applied).toBeLessThan(events.length);
  const rest = await jsonOf<Replayed>(stack, ["replay", "--from", edge]);
  expect(first.applied + rest.applied).toBe(events.length);
  await expectWhole(stack, events);
});

testWithStack("a replay that was killed applies the rest when it is run again", OPTIONS, async (stack) => {
  const { redis } = stack;
  const events = await history(stack, 120);
  await lose(stack);
  const from = new Date(Date.now() - 60_000).toISOString();
  const first = startCommand(stack, ["replay", "--from", from, "--rate", "40"]);
  await eventually(async () => (await redis.zcard(homeKey("reader-5"))) >= 30, "a part of it is applied");
  await first.crash();
  const before = await redis.zcard(homeKey("reader-5"));
  expect(before).toBeLessThan(110);
  const rest = await jsonOf<Replayed>(stack, ["replay", "--from", from]);
  expect(rest.complete).toBe(true);
  // What was in hand when it was killed is applied again; what was acknowledged is not.
  expect(rest.applied).toBeGreaterThanOrEqual(events.length - before - 1);
  expect(rest.applied).toBeLessThan(events.length);
  await expectWhole(stack, events);
  expect(await replaysKept(stack)).toEqual([]);
});

testWithStack("Ctrl-C finishes the events in flight and says so; --restart begins anew", OPTIONS, async (stack) => {
  const { redis } = stack;
  const events = await history(stack, 120);
  await lose(stack);
  const args = ["replay", "--from", "15m"];
  const first = startCommand(stack, [...args, "--rate", "40", "--json"]);
  await eventually(async () => (await redis.zcard(homeKey("reader-5"))) >= 20, "a part of it is applied");
  first.signal("SIGINT");
  expect(await first.exited).toEqual({ code: 130, signal: null });
  const { applied, complete } = JSON.parse(first.output()) as Replayed;
  expect([applied > 0, applied < events.length, complete]).toEqual([true, true, false]);
  expect(await replaysKept(stack)).toEqual(["replay-15m-end"]);
  expect(await jsonOf<Replayed>(stack, args)).toMatchObject({ applied: events.length - applied, complete: true });
  await expectWhole(stack, events);

  await lose(stack);
  const second = startCommand(stack, [...args, "--rate", "40"]);
  await eventually(async () => (await redis.zcard(homeKey("reader-5"))) >= 20, "a part of it is applied");
  second.signal("SIGINT");
  await second.exited;
  expect(second.output()).toMatch(/stopped before the end; the same command, within a day, continues from here/);
  await lose(stack);
  expect((await jsonOf<Replayed>(stack, [...args, "--restart"])).applied).toBe(events.length);
  await expectWhole(stack, events);
});

testWithStack(
  "events that cannot be applied are named and left out; the others are applied",
  OPTIONS,
  async (stack) => {
    const events = await history(stack, 10);
    const { connection } = stack.streams;
    const { seq } = await connection.jetstream().publish("drops.created", "{}");
    await lose(stack);
    const report = await jsonOf<Replayed>(stack, ["replay", "--from", "15m"], { code: 1 });
    expect(report).toMatchObject({ applied: events.length, complete: true, left_out: [{ seq }] });
    await expectWhole(stack, events);
  },
);
