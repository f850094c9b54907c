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

type Replayed = {
  readonly applied: number;
  readonly left_out: readonly unknown[];
  readonly complete: boolean;
  readonly after: string | null;
};

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

async function consumersOf({ streams }: Stack): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of streams.manager.consumers.list("DROPS")) names.push(name);
  return names.sort();
}

// Invariant 5.
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
    const consumers = await consumersOf(stack);
    for (let round = 0; round < 2; round += 1) {
      expect(await jsonOf<Replayed>(stack, ["replay", "--from", "15m"])).toMatchObject({
        applied: events.length,
        left_out: [],
        complete: true,
        after: null,
      });
      await expectWhole(stack, events);
    }
    expect(await consumersOf(stack)).toEqual(consumers);
    expect(await streams.count("NOTIFY")).toBe(told);
    // A frame sent before this one would have arrived before it.
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

testWithStack("a replay that was killed continues after the last position it printed", OPTIONS, async (stack) => {
  const events = await history(stack, 240);
  await lose(stack);
  const from = new Date(Date.now() - 60_000).toISOString();
  const first = startCommand(stack, ["replay", "--from", from, "--rate", "24"]);
  const printed = (): string => [...first.errors().matchAll(/ --after (\d+)\n/g)].at(-1)?.[1] ?? "";
  await eventually(async () => Number(printed()) >= 10, "it prints a position");
  await first.crash();
  expect(first.output()).toBe("");
  const rest = await jsonOf<Replayed>(stack, ["replay", "--from", from, "--after", printed()]);
  expect(rest).toMatchObject({ applied: events.length - Number(printed()), complete: true });
  await expectWhole(stack, events);
});

testWithStack("a replay goes on to its end when nobody reads its progress any more", OPTIONS, async (stack) => {
  const events = await history(stack, 60);
  await lose(stack);
  const started = startCommand(stack, ["replay", "--from", "15m", "--rate", "30", "--json"]);
  started.closeErrors();
  expect(await started.exited).toEqual({ code: 0, signal: null });
  expect(JSON.parse(started.output())).toMatchObject({ applied: events.length, complete: true });
  await expectWhole(stack, events);
});

testWithStack(
  "Ctrl-C finishes the events in flight and names the position to continue after",
  OPTIONS,
  async (stack) => {
    const { redis } = stack;
    const events = await history(stack, 120);
    await lose(stack);
    const args = ["replay", "--from", "15m"];
    const interrupted = async (...more: readonly string[]): Promise<string> => {
      const started = startCommand(stack, [...args, "--rate", "40", ...more]);
      await eventually(async () => (await redis.zcard(homeKey("reader-5"))) >= 20, "a part of it is applied");
      started.signal("SIGINT");
      expect(await started.exited).toEqual({ code: 130, signal: null });
      return started.output();
    };
    const stopped = JSON.parse(await interrupted("--json")) as Replayed;
    expect([stopped.applied > 0, stopped.applied < events.length, stopped.complete]).toEqual([true, true, false]);
    const rest = await jsonOf<Replayed>(stack, [...args, "--after", String(stopped.after)]);
    expect(rest).toMatchObject({ applied: events.length - stopped.applied, complete: true, after: null });
    await expectWhole(stack, events);

    await lose(stack);
    expect(await interrupted()).toMatch(/stopped before the end; to continue: --after \d+\n/);
    expect((await jsonOf<Replayed>(stack, args)).applied).toBe(events.length);
    await expectWhole(stack, events);
  },
);

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
