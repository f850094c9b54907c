import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { startRedis } from "../../src/sandbox/brokers/index.js";
import { jsonOf, startCommand } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { dropsOf, expectLoaded } from "../support/load.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { deleted, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import type { World } from "../support/world.js";

const HOUR = 3_600_000;
const READERS = ["bob", "carol", "dora"];

const onStack = sharedStack();
/** No bridge runs. */
const withoutBridge = sharedStack({ roles: "fanout" });

/** All that the timelines of a stack must hold: its tests share local and global. */
type Told = { readonly authors: Set<string>; readonly history: TimelineEvent[] };
const TOLD = new WeakMap<World, Told>();

function toldOf({ world }: SharedStack): Told {
  const told = TOLD.get(world) ?? { authors: new Set(), history: [] };
  TOLD.set(world, told);
  return told;
}

/** More drops of the test's author, in the upstreams. */
function drops(stack: SharedStack, count: number): TimelineEvent[] {
  const { authors, history } = toldOf(stack);
  const author = stack.id("alice");
  const fresh = dropsOf(author, stack.world, READERS, { from: history.length, count });
  authors.add(author);
  history.push(...fresh);
  return fresh;
}

const idOf = ({ payload }: TimelineEvent): string => ("drop_id" in payload ? payload.drop_id : "");

/** All keys hold what they must, whatever else was admitted on the way (the follows may have been). */
async function expectLanded(stack: SharedStack, admitted: number): Promise<void> {
  const { redis, streams } = stack;
  const { authors, history } = toldOf(stack);
  await eventually(async () => (await streams.count("DROPS")) >= admitted, "what was lost is admitted", 30_000);
  await becomes(() => expectLoaded(redis, READERS, history, [...authors]));
  await streams.settledWith(admitted, 30_000);
  await expectLoaded(redis, READERS, history, [...authors]);
  expect(await streams.count("DLQ")).toBe(0);
}

// Invariant 5.
onStack("events published while the connection to Redis was down are found after it is back", async (stack) => {
  await stack.publish(...drops(stack, 20));
  await stack.streams.settledWith(20);
  await stack.redis.call("CLIENT", "KILL", "TYPE", "pubsub");
  // Nobody listens for a moment: these are in the upstreams only.
  drops(stack, 10);
  await expectLanded(stack, 30);
});

// Invariant 5.
onStack("events of upstreams whose clock is ahead are found after a lost connection", async (stack) => {
  await stack.publish(...drops(stack, 5));
  await stack.streams.settledWith(5);
  await stack.redis.call("CLIENT", "KILL", "TYPE", "pubsub");
  for (const event of drops(stack, 5)) stack.world.touch(idOf(event), Date.now() + 20_000);
  await expectLanded(stack, 10);
});

onStack("a gap in a producer's numbers is reconciled", async (stack) => {
  const numbered = drops(stack, 10).map((event, index) => ({
    ...event,
    payload: { ...event.payload, producer: stack.id("posts"), seq: index + 1 },
  })) as TimelineEvent[];
  // The sixth never arrives, as if Redis had dropped it.
  await stack.publish(...numbered.filter((_, index) => index !== 5));
  await expectLanded(stack, 10);
});

onStack("a failed reconciliation is retried; an upstream without the method is skipped", async (stack) => {
  const { streams, upstreams } = stack;
  await stack.publish(...drops(stack, 5));
  await streams.settledWith(5);
  const heal = upstreams.inject({ method: "ListDrops", code: status.UNAVAILABLE });
  const lacking = upstreams.inject({ method: "ListFollowChanges", code: status.UNIMPLEMENTED });
  const before = upstreams.calls("ListDrops");
  await stack.redis.call("CLIENT", "KILL", "TYPE", "pubsub");
  drops(stack, 5);
  await eventually(() => upstreams.calls("ListDrops") - before >= 2, "it is tried again", 20_000);
  heal();
  await expectLanded(stack, 10);
  lacking();
});

onStack("events published while Redis was dead are found after it is back", async (stack) => {
  await stack.publish(...drops(stack, 40));
  await stack.streams.settledWith(40);
  stack.redisServer.kill("SIGKILL");
  await stack.redisServer.exited;
  drops(stack, 20);
  const { dir, port } = stack.redisServer;
  const again = await startRedis({ dir, port, appendonly: true });
  stack.afterServices(() => again.stop());
  await expectLanded(stack, 60);
});

withoutBridge("reconcile --since admits lost events by hand, and finds nothing the second time", async (stack) => {
  drops(stack, 12);
  const reconcile = (): Promise<unknown> => jsonOf(stack, ["reconcile", "--since", "15m"]);
  const done = { changes: 15, complete: true, since: null, lacking: [] };
  expect(await reconcile()).toEqual({ ...done, admitted: 15 });
  await expectLanded(stack, 15);
  expect(await reconcile()).toEqual({ ...done, admitted: 0 });
  for (const event of drops(stack, 1)) stack.world.touch(idOf(event), Date.now() + 20_000);
  // The clock of the upstreams is ahead.
  expect(await jsonOf(stack, ["reconcile", "--since", "1m"])).toMatchObject({ admitted: 1, complete: true });
});

// Invariant 5.
withoutBridge("a starting bridge finds in the upstreams what changed while no bridge ran", async (stack) => {
  const { streams, world, id } = stack;
  const bridge = await stack.start({ roles: "bridge" });
  const [gone, ...rest] = drops(stack, 20);
  await stack.publish(gone as TimelineEvent, ...rest);
  await streams.settledWith(20);
  await bridge.crash();
  drops(stack, 5);
  const goneId = idOf(gone as TimelineEvent);
  world.remove(goneId);
  const version = world.unfollow("dora", id("alice"));
  toldOf(stack).history.push(deleted(goneId, id("alice")), unfollowed("dora", id("alice"), version));
  await stack.start({ roles: "bridge" });
  await expectLanded(stack, 27);
});

withoutBridge("after Ctrl-C reconcile says where to continue", async (stack) => {
  const { upstreams } = stack;
  drops(stack, 5);
  const release = upstreams.inject({ method: "ListDrops", delayMs: 200 });
  const before = upstreams.calls("ListDrops");
  const run = startCommand(stack, ["reconcile", "--since", "1d", "--json"]);
  await eventually(() => upstreams.calls("ListDrops") - before >= 3, "some time is reconciled");
  run.signal("SIGINT");
  expect(await run.exited).toEqual({ code: 130, signal: null });
  release();
  const stopped = JSON.parse(run.output()) as { complete: boolean; since: string };
  expect([stopped.complete, Date.parse(stopped.since) < Date.now() - 20 * HOUR]).toEqual([false, true]);
  const rest = await jsonOf(stack, ["reconcile", "--since", stopped.since]);
  expect(rest).toMatchObject({ admitted: 8, complete: true, since: null });
  await expectLanded(stack, 8);
});

withoutBridge("a reconcile that fails says where to continue", async (stack) => {
  const { upstreams } = stack;
  drops(stack, 5);
  const release = upstreams.inject({ method: "ListDrops", delayMs: 200 });
  const before = upstreams.calls("ListDrops");
  const run = startCommand(stack, ["reconcile", "--since", "1d"]);
  await eventually(() => upstreams.calls("ListDrops") - before >= 3, "some time is reconciled");
  const heal = upstreams.inject({ method: "ListDrops", code: status.UNAVAILABLE });
  expect(await run.exited).toEqual({ code: 1, signal: null });
  release();
  heal();
  const [, since = ""] = /UNAVAILABLE.*; to continue: --since (\S+)/.exec(run.errors()) ?? [];
  expect(Date.parse(since)).toBeLessThan(Date.now() - 20 * HOUR);
  expect(await jsonOf(stack, ["reconcile", "--since", since])).toMatchObject({ admitted: 8, complete: true });
  await expectLanded(stack, 8);
});

withoutBridge("reconcile fails where an upstream lists no changes, and names what it lacks", async (stack) => {
  for (const method of ["ListDrops", "ListFollowChanges"] as const)
    stack.defer(stack.upstreams.inject({ method, code: status.UNIMPLEMENTED }));
  const found = await jsonOf<{ lacking: string[] }>(stack, ["reconcile", "--since", "15m"], { code: 1 });
  expect(found).toMatchObject({ changes: 0, admitted: 0 });
  expect(found.lacking.toSorted()).toEqual(["ListDrops", "ListFollowChanges"]);
});
