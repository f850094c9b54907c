import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { startRedis } from "../../src/sandbox/brokers/index.js";
import { jsonOf, startCommand } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { drops, expectLoaded } from "../support/load.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { deleted, type TimelineEvent, unfollowed } from "../support/timeline-events.js";

const HOUR = 3_600_000;
const READERS = ["bob", "carol", "dora"];

/** All keys hold what they must, whatever else was admitted on the way (the follows may have been). */
async function expectLanded({ redis, streams }: Stack, history: readonly TimelineEvent[], admitted = history.length) {
  await eventually(async () => (await streams.count("DROPS")) >= admitted, "what was lost is admitted", 30_000);
  await streams.settled(await streams.count("DROPS"), 30_000);
  await expectLoaded(redis, READERS, history);
  expect(await streams.count("DLQ")).toBe(0);
}

// Invariant 5.
testWithStack("a starting bridge finds in the upstreams what changed while no bridge ran", {}, async (stack) => {
  const { streams, world } = stack;
  const history = drops(stack.world, READERS, 0, 20);
  await stack.publish(...history);
  await streams.settled(history.length);
  await stack.service.crash();
  const lost = drops(stack.world, READERS, 20, 5);
  world.remove("load-3");
  world.unfollow("dora", "alice");
  await stack.start();
  const all = [...history, ...lost, deleted("load-3", "alice"), unfollowed("dora", "alice", 2)];
  await expectLanded(stack, all);
});

// Invariant 5.
testWithStack(
  "events published while the connection to Redis was down are found after it is back",
  {},
  async (stack) => {
    const history = drops(stack.world, READERS, 0, 20);
    await stack.publish(...history);
    await stack.streams.settled(history.length);
    await stack.redis.call("CLIENT", "KILL", "TYPE", "pubsub");
    // Nobody listens for a moment: these are in the upstreams only.
    const lost = drops(stack.world, READERS, 20, 10);
    await expectLanded(stack, [...history, ...lost]);
  },
);

// Invariant 5.
testWithStack(
  "events of upstreams whose clock is ahead are found after a lost connection, and by hand",
  {},
  async (stack) => {
    const { world, streams } = stack;
    const history = drops(world, READERS, 0, 5);
    await stack.publish(...history);
    await streams.settled(history.length);
    await stack.redis.call("CLIENT", "KILL", "TYPE", "pubsub");
    const lost = drops(world, READERS, 5, 5);
    for (let number = 5; number < 10; number++) world.touch(`load-${number}`, Date.now() + 20_000);
    await expectLanded(stack, [...history, ...lost]);
    await stack.service.stop();
    await stack.start({ roles: "fanout" });
    drops(world, READERS, 10, 1);
    world.touch("load-10", Date.now() + 20_000);
    expect(await jsonOf(stack, ["reconcile", "--since", "1m"])).toMatchObject({ admitted: 1, complete: true });
  },
);

testWithStack("events published while Redis was dead are found after it is back", {}, async (stack) => {
  const history = drops(stack.world, READERS, 0, 40);
  await stack.publish(...history);
  await stack.streams.settled(history.length);
  stack.redisServer.kill("SIGKILL");
  await stack.redisServer.exited;
  const lost = drops(stack.world, READERS, 40, 20);
  const { dir, port } = stack.redisServer;
  const again = await startRedis({ dir, port, appendonly: true });
  stack.afterServices(() => again.stop());
  await expectLanded(stack, [...history, ...lost]);
});

testWithStack("a gap in a producer's numbers is reconciled", {}, async (stack) => {
  const history = drops(stack.world, READERS, 0, 10).map((event, index) => ({
    ...event,
    payload: { ...event.payload, producer: "posts-1", seq: index + 1 },
  })) as TimelineEvent[];
  // The sixth never arrives, as if Redis had dropped it.
  await stack.publish(...history.filter((_, index) => index !== 5));
  await expectLanded(stack, history);
});

testWithStack("a failed reconciliation is retried; an upstream without the method is skipped", {}, async (stack) => {
  const { streams, upstreams } = stack;
  const history = drops(stack.world, READERS, 0, 5);
  await stack.publish(...history);
  await streams.settled(history.length);
  const heal = upstreams.inject({ method: "ListDrops", code: status.UNAVAILABLE });
  const lacking = upstreams.inject({ method: "ListFollowChanges", code: status.UNIMPLEMENTED });
  const before = upstreams.calls("ListDrops");
  await stack.redis.call("CLIENT", "KILL", "TYPE", "pubsub");
  const lost = drops(stack.world, READERS, 5, 5);
  await eventually(() => upstreams.calls("ListDrops") - before >= 2, "it is tried again", 20_000);
  heal();
  await expectLanded(stack, [...history, ...lost]);
  lacking();
});

testWithStack(
  "reconcile --since admits lost events by hand, and finds nothing the second time",
  { roles: "fanout" },
  async (stack) => {
    // No bridge runs at all.
    const history = drops(stack.world, READERS, 0, 12);
    const reconcile = (): Promise<unknown> => jsonOf(stack, ["reconcile", "--since", "15m"]);
    const done = { changes: 15, complete: true, since: null, lacking: [] };
    expect(await reconcile()).toEqual({ ...done, admitted: 15 });
    await expectLanded(stack, history, 15);
    expect(await reconcile()).toEqual({ ...done, admitted: 0 });
  },
);

testWithStack("after Ctrl-C reconcile says where to continue", { roles: "fanout" }, async (stack) => {
  const { upstreams } = stack;
  const history = drops(stack.world, READERS, 0, 5);
  const release = upstreams.inject({ method: "ListDrops", delayMs: 200 });
  const run = startCommand(stack, ["reconcile", "--since", "1d", "--json"]);
  await eventually(() => upstreams.calls("ListDrops") >= 3, "some time is reconciled");
  run.signal("SIGINT");
  expect(await run.exited).toEqual({ code: 130, signal: null });
  release();
  const stopped = JSON.parse(run.output()) as { complete: boolean; since: string };
  expect([stopped.complete, Date.parse(stopped.since) < Date.now() - 20 * HOUR]).toEqual([false, true]);
  const rest = await jsonOf(stack, ["reconcile", "--since", stopped.since]);
  expect(rest).toMatchObject({ admitted: 8, complete: true, since: null });
  await expectLanded(stack, history, 8);
});

testWithStack("a reconcile that fails says where to continue", { roles: "fanout" }, async (stack) => {
  const { upstreams } = stack;
  const history = drops(stack.world, READERS, 0, 5);
  const release = upstreams.inject({ method: "ListDrops", delayMs: 200 });
  const run = startCommand(stack, ["reconcile", "--since", "1d"]);
  await eventually(() => upstreams.calls("ListDrops") >= 3, "some time is reconciled");
  const heal = upstreams.inject({ method: "ListDrops", code: status.UNAVAILABLE });
  expect(await run.exited).toEqual({ code: 1, signal: null });
  release();
  heal();
  const [, since = ""] = /UNAVAILABLE.*; to continue: --since (\S+)/.exec(run.errors()) ?? [];
  expect(Date.parse(since)).toBeLessThan(Date.now() - 20 * HOUR);
  expect(await jsonOf(stack, ["reconcile", "--since", since])).toMatchObject({ admitted: 8, complete: true });
  await expectLanded(stack, history, 8);
});

testWithStack("reconcile fails where an upstream lists no changes, and names what it lacks", {}, async (stack) => {
  for (const method of ["ListDrops", "ListFollowChanges"] as const)
    stack.upstreams.inject({ method, code: status.UNIMPLEMENTED });
  const found = await jsonOf<{ lacking: string[] }>(stack, ["reconcile", "--since", "15m"], { code: 1 });
  expect(found).toMatchObject({ changes: 0, admitted: 0 });
  expect(found.lacking.toSorted()).toEqual(["ListDrops", "ListFollowChanges"]);
});
