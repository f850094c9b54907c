import { expect } from "@jest/globals";
import { becomes, eventually } from "../support/eventually.js";
import { drops, expectLoaded } from "../support/load.js";
import { appendOnlyBytes, cutAppendOnlyFile, onDisk } from "../support/power.js";
import { progressRecorded } from "../support/progress-recorded.js";
import { untilReady } from "../support/service.js";
import { type EventStream, openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";

const READERS = Array.from({ length: 12 }, (_, number) => `reader-${number}`);
/** Pages of five followers: the audience is queued in chunks. */
const OPTIONS = { env: { TIMELINE_FANOUT_CHUNK_SIZE: "5" }, timeoutMs: 60_000, slow: true };

const RECORD = "timeline:x:continuity:{0}";

/** Waits until the record names the end of the log and of the jobs. */
async function recorded({ redis, streams }: Stack): Promise<void> {
  const { manager } = streams;
  const ends = await Promise.all(
    ["DROPS", "FANOUT"].map(async (name) => (await manager.streams.info(name)).state.last_seq),
  );
  const named = async (): Promise<boolean> => {
    const { last, lastJob } = JSON.parse((await redis.hget(RECORD, "log")) ?? "{}") as Record<string, number>;
    return last === ends[0] && lastJob === ends[1];
  };
  await eventually(named, "the record names the ends of both");
}

// Invariant 1.
testWithStack(
  "nats-server loses power: what it had not on its disk comes from the upstreams",
  OPTIONS,
  async (stack) => {
    const { natsServer, streams, world, redis, service, reads } = stack;
    const heard = await openEvents(service.httpUrl, "reader-1");
    const before = drops(world, READERS, 0, 20);
    await stack.publish(...before);
    await streams.settledWith(20);
    await progressRecorded(stack);
    const disk = await onDisk(natsServer);
    const lost = drops(world, READERS, 20, 30);
    await stack.publish(...lost);
    await streams.settledWith(50);
    await eventually(() => heard.drops().length === 50, "the stream has heard of them");
    await recorded(stack);
    const again = await disk.powerLoss();
    try {
      await eventually(() => /everything that may have been lost is applied/.test(service.output()), "it is recovered");
      await untilReady(service);
      const after = drops(world, READERS, 50, 40);
      await stack.publish(...after);
      await streams.settledWith(90);
      await becomes(() => expectLoaded(redis, READERS, [...before, ...lost, ...after]));
      await eventually(async () => !(await reads.home("reader-1")).degraded, "pages are whole");
      expect(await streams.count("DLQ")).toBe(0);
      await heardOrReset(heard, 90);
    } finally {
      await service.stop();
      await again.stop();
    }
  },
);

async function heardOrReset(stream: EventStream, count: number): Promise<void> {
  const isReset = (): boolean => stream.events.some(({ event }) => event === "reset");
  await eventually(
    () => new Set(stream.drops()).size === count || isReset() || `${stream.drops().length} drops and no reset`,
    "the stream has heard of everything, or says that it has not",
  );
}

// Invariant 1.
testWithStack(
  "the jobs alone are older than the log after a power loss: their events are applied again",
  { ...OPTIONS, service: false },
  async (stack) => {
    const { natsServer, streams, world, redis } = stack;
    const hanging = await stack.start({ env: { ...OPTIONS.env, AVION_TEST_FAILPOINTS: 'handle=hang@"action"' } });
    const disk = await onDisk(natsServer, "FANOUT");
    const history = drops(world, READERS, 0, 10);
    await stack.publish(...history);
    const planned = async (): Promise<boolean> => {
      if ((await streams.count("DROPS")) < 10) return false;
      const { num_pending, num_ack_pending } = await streams.manager.consumers.info("DROPS", "planner");
      return num_pending + num_ack_pending === 0;
    };
    await eventually(planned, "all are planned");
    expect(await streams.count("FANOUT")).toBeGreaterThan(0);
    await recorded(stack);
    await hanging.crash();
    const again = await disk.powerLoss();
    const service = await stack.start();
    try {
      expect(await streams.count("FANOUT")).toBe(0);
      await eventually(() => /everything that may have been lost is applied/.test(service.output()), "it is recovered");
      await becomes(() => expectLoaded(redis, READERS, history));
    } finally {
      await service.stop();
      await again.stop();
    }
  },
);

// Invariant 1.
testWithStack(
  "Redis loses power: its append-only file ends in the midst of a command, and what is missing comes from the log",
  OPTIONS,
  async (stack) => {
    const { redisServer, streams, world, redis, service, reads } = stack;
    const before = drops(world, READERS, 0, 20);
    await stack.publish(...before);
    await streams.settledWith(20);
    await progressRecorded(stack);
    const synced = await appendOnlyBytes(redisServer);
    const lost = drops(world, READERS, 20, 60);
    await stack.publish(...lost);
    await streams.settledWith(80);
    await eventually(async () => (await appendOnlyBytes(redisServer)) > synced + 100, "the file has grown");
    const again = await cutAppendOnlyFile(redisServer, synced + 77);
    try {
      await eventually(() => /everything that may have been lost is applied/.test(service.output()), "it is recovered");
      await becomes(() => expectLoaded(redis, READERS, [...before, ...lost]));
      await eventually(async () => !(await reads.home("reader-1")).degraded, "pages are whole");
      expect(await streams.count("DLQ")).toBe(0);
    } finally {
      await service.stop();
      await again.stop();
    }
  },
);
