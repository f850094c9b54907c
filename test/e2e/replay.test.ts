import { expect } from "@jest/globals";
import { jsonOf, startCommand } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { expectTimelines } from "../support/oracle.js";
import { openEvents } from "../support/sse.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { created, deleted, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { homeKey } from "../support/timeline-keys.js";

/** Pages of five followers: alice's audience is queued in chunks. */
const onStack = sharedStack({ env: { TIMELINE_FANOUT_CHUNK_SIZE: "5" }, timeoutMs: 90_000 });

type Replayed = {
  readonly applied: number;
  readonly left_out: readonly unknown[];
  readonly complete: boolean;
  readonly after: string | null;
};

type Scene = SharedStack & {
  readonly alice: string;
  readonly readers: readonly string[];
  /** When it began. The events of other tests are older. */
  readonly from: string;
  /** Sequence of the last event before it. */
  readonly before: number;
};

/** A test with an author and twelve readers of its own, and without the local and global of others. */
function replayTest(name: string, work: (scene: Scene) => Promise<void>): void {
  onStack(name, async (stack) => {
    const { redis, streams, id } = stack;
    await redis.del("timeline:local", "timeline:global");
    const { state } = await streams.manager.streams.info("DROPS");
    const own = {
      alice: id("alice"),
      readers: Array.from({ length: 12 }, (_, number) => id(`reader-${number}`)),
      from: new Date().toISOString(),
      before: state.last_seq,
    };
    await work(Object.assign(stack, own));
  });
}

/** Drops, deletions and an unfollow, applied; returns what happened, the follows aside. */
async function history(scene: Scene, count: number): Promise<TimelineEvent[]> {
  const { world, streams, alice, readers, id } = scene;
  for (const reader of readers) world.follow(reader, alice);
  const now = Date.now();
  const drops = Array.from({ length: count }, (_, number) => ({
    drop_id: id(`d-${number}`),
    user_id: alice,
    visibility: "public" as const,
    created_at: now - 1_000 + number,
  }));
  world.post(...drops);
  await scene.publish(...drops.map(created));
  await streams.settled(count);
  world.remove(id("d-3"));
  const reader = id("reader-1");
  const gone = [deleted(id("d-3"), alice), unfollowed(reader, alice, world.unfollow(reader, alice))];
  await scene.publish(...gone);
  await streams.settled(count + gone.length);
  return [...drops.map(created), ...gone];
}

function expectWhole({ redis, alice, readers }: Scene, events: readonly TimelineEvent[]): Promise<void> {
  const follows = readers.map((reader) => followed(reader, alice, 1));
  return expectTimelines(redis, [alice, ...readers], [...follows, ...events]);
}

/** Loses every timeline. */
async function lose({ redis, alice, readers }: Scene): Promise<void> {
  await redis.del("timeline:local", "timeline:global", ...[alice, ...readers].map(homeKey));
}

async function consumersOf({ streams }: Scene): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of streams.manager.consumers.list("DROPS")) names.push(name);
  return names.sort();
}

// Invariant 5.
replayTest("a replay restores lost entries, twice with the same result, and notifies nobody", async (scene) => {
  const { redis, service, streams, alice, readers, from, id } = scene;
  const events = await history(scene, 30);
  await expectWhole(scene, events);
  const stream = await openEvents(service.httpUrl, id("reader-0"));
  await redis.zrem("timeline:local", id("d-5"), id("d-6"));
  await redis.zrem(homeKey(id("reader-0")), id("d-1"), id("d-29"));
  await redis.del(...readers.slice(2).map(homeKey));
  const told = await streams.count("NOTIFY");
  const consumers = await consumersOf(scene);
  for (let round = 0; round < 2; round += 1) {
    expect(await jsonOf<Replayed>(scene, ["replay", "--from", from])).toMatchObject({
      applied: events.length,
      left_out: [],
      complete: true,
      after: null,
    });
    await expectWhole(scene, events);
  }
  expect(await consumersOf(scene)).toEqual(consumers);
  expect(await streams.count("NOTIFY")).toBe(told);
  // A frame sent before this one would have arrived before it.
  const last = { drop_id: id("last"), user_id: alice, visibility: "public", created_at: Date.now() } as const;
  scene.world.post(last);
  await scene.publish(created(last));
  await stream.waitFor("new_drop");
  expect(stream.events.map(({ data }) => data.drop_id)).toEqual([last.drop_id]);
  stream.close();
});

replayTest("only events admitted in the range are applied", async (scene) => {
  const events = await history(scene, 10);
  const { from, before, streams } = scene;
  const at = async (seq: number): Promise<string> =>
    (await streams.manager.streams.getMessage("DROPS", { seq })).time.toISOString();
  const edge = await at(before + 11);
  await lose(scene);
  const first = await jsonOf<Replayed>(scene, ["replay", "--from", from, "--to", edge]);
  expect(first.applied).toBeLessThan(events.length);
  const rest = await jsonOf<Replayed>(scene, ["replay", "--from", edge]);
  expect(first.applied + rest.applied).toBe(events.length);
  await expectWhole(scene, events);
});

replayTest("a replay that was killed continues after the last position it printed", async (scene) => {
  const events = await history(scene, 240);
  await lose(scene);
  const { from, before } = scene;
  const first = startCommand(scene, ["replay", "--from", from, "--rate", "24"]);
  const printed = (): number => Number([...first.errors().matchAll(/ --after (\d+)\n/g)].at(-1)?.[1] ?? 0);
  await eventually(async () => printed() >= before + 10, "it prints a position");
  await first.crash();
  expect(first.output()).toBe("");
  const rest = await jsonOf<Replayed>(scene, ["replay", "--from", from, "--after", String(printed())]);
  expect(rest).toMatchObject({ applied: events.length - (printed() - before), complete: true });
  await expectWhole(scene, events);
});

replayTest("a replay goes on to its end when nobody reads its progress any more", async (scene) => {
  const events = await history(scene, 60);
  await lose(scene);
  const started = startCommand(scene, ["replay", "--from", scene.from, "--rate", "30", "--json"]);
  started.closeErrors();
  expect(await started.exited).toEqual({ code: 0, signal: null });
  expect(JSON.parse(started.output())).toMatchObject({ applied: events.length, complete: true });
  await expectWhole(scene, events);
});

replayTest("Ctrl-C finishes the events in flight and names the position to continue after", async (scene) => {
  const { redis, from, id } = scene;
  const events = await history(scene, 120);
  await lose(scene);
  const args = ["replay", "--from", from];
  const interrupted = async (...more: readonly string[]): Promise<string> => {
    const started = startCommand(scene, [...args, "--rate", "40", ...more]);
    await eventually(async () => (await redis.zcard(homeKey(id("reader-5")))) >= 20, "a part of it is applied");
    started.signal("SIGINT");
    expect(await started.exited).toEqual({ code: 130, signal: null });
    return started.output();
  };
  const stopped = JSON.parse(await interrupted("--json")) as Replayed;
  expect([stopped.applied > 0, stopped.applied < events.length, stopped.complete]).toEqual([true, true, false]);
  const rest = await jsonOf<Replayed>(scene, [...args, "--after", String(stopped.after)]);
  expect(rest).toMatchObject({ applied: events.length - stopped.applied, complete: true, after: null });
  await expectWhole(scene, events);

  await lose(scene);
  expect(await interrupted()).toMatch(/stopped before the end; to continue: --after \d+\n/);
  expect((await jsonOf<Replayed>(scene, args)).applied).toBe(events.length);
  await expectWhole(scene, events);
});

replayTest("events that cannot be applied are named and left out; the others are applied", async (scene) => {
  const events = await history(scene, 10);
  const { seq } = await scene.streams.connection.jetstream().publish("drops.created", "{}");
  await lose(scene);
  const report = await jsonOf<Replayed>(scene, ["replay", "--from", scene.from], { code: 1 });
  expect(report).toMatchObject({ applied: events.length, complete: true, left_out: [{ seq }] });
  await expectWhole(scene, events);
});
