import { rm } from "node:fs/promises";
import { join } from "node:path";
import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import { eventually } from "../support/eventually.js";
import { AUTHOR, drops, dropsOf, expectLoaded } from "../support/load.js";
import { progressRecorded } from "../support/progress-recorded.js";
import { openReader, type Reader } from "../support/reader.js";
import { httpStatus, type Service } from "../support/service.js";
import { type Stack, type StackOptions, testWithStack } from "../support/stack.js";
import { created, deleted, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import type { Fault } from "../support/upstreams.js";

const READERS = Array.from({ length: 12 }, (_, number) => `reader-${number}`);
/** Those who stay; a further drop would make the others follow its author again. */
const STAYING = READERS.filter((reader) => reader !== "reader-1");
const STREAMS = ["ADVISORIES", "CHECKS", "COMPLETIONS", "DLQ", "DROPS", "EDGES", "ENGAGEMENT", "FANOUT", "NOTIFY"];
/** Pages of five followers: alice's audience is queued in chunks. */
const OPTIONS: StackOptions = { env: { TIMELINE_FANOUT_CHUNK_SIZE: "5" }, timeoutMs: 90_000 };

/** Kills nats-server and starts it again on its port, without anything it had stored. */
async function loseNats(
  { natsServer, afterServices }: Stack,
  while_: () => Promise<void> = async () => {},
): Promise<void> {
  natsServer.kill("SIGKILL");
  await natsServer.exited;
  await while_();
  await rm(join(natsServer.dir, "jetstream"), { recursive: true, force: true });
  const again = await startNats({ dir: natsServer.dir, port: natsServer.port });
  afterServices(() => again.stop());
}

async function notReady(service: Service): Promise<string> {
  const response = await fetch(`${service.httpUrl}/readyz`, { signal: AbortSignal.timeout(2_000) }).catch(
    () => undefined,
  );
  return response === undefined || response.status === 200 ? "" : await response.text();
}

/** Watches what `/readyz` says until it is stopped. */
function followReadiness(service: Service): { readonly faults: Set<string>; stop(): Promise<void> } {
  const faults = new Set<string>();
  let over = false;
  const running = (async () => {
    while (!over) {
      faults.add(await notReady(service));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  return {
    faults,
    stop: async () => {
      over = true;
      await running;
      faults.delete("");
    },
  };
}

const ready = (service: Service, patienceMs = 30_000): Promise<void> =>
  eventually(async () => (await httpStatus(`${service.httpUrl}/readyz`)) === 200, "the service is ready", patienceMs);

/** Reads a page again and again, until it is whole and holds so many drops. */
async function readUntilWhole(reads: Reader, reader: string, count: number): Promise<void> {
  const pages: { ids: number; degraded: boolean }[] = [];
  await eventually(
    async () => {
      const page = await reads.home(reader, { limit: 100 }, 2_000).catch(() => undefined);
      if (page) pages.push({ ids: page.drop_ids.length, degraded: page.degraded });
      return page?.degraded === false && page.drop_ids.length === count;
    },
    "pages are whole again",
    40_000,
  );
  return expect(pages.filter(({ ids, degraded }) => !degraded && ids < count)).toEqual([]);
}

// Invariant 1.
testWithStack(
  "NATS comes back without its data: everything is declared again, and lost events are on the pages",
  OPTIONS,
  async (stack) => {
    const { streams, world, upstreams, service } = stack;
    // A process that only reads sees the same.
    const other = await stack.start({ roles: "api" });
    const reads = openReader(other.grpcAddress);
    stack.defer(() => reads.close());
    const before = drops(world, READERS, 0, 20);
    await stack.publish(...before);
    await streams.settled(before.length);
    for (const reader of READERS) await reads.home(reader);
    await progressRecorded(stack);
    // Admitted, and held up in fan-out when the log goes.
    const heal = upstreams.inject({ method: "GetFollowersList", code: status.UNAVAILABLE });
    const lost = drops(world, READERS, 20, 30);
    world.remove("load-3");
    const gone = [deleted("load-3", "alice"), unfollowed("reader-1", "alice", world.unfollow("reader-1", "alice"))];
    await stack.publish(...lost, ...gone);
    await eventually(async () => (await streams.count("DROPS")) === 52, "all are admitted");
    const readiness = followReadiness(service);
    let meanwhile: TimelineEvent[] = [];
    await loseNats(stack, async () => {
      await eventually(async () => (await notReady(service)) !== "", "the service is not ready");
      meanwhile = drops(world, STAYING, 50, 10);
      await stack.publish(...meanwhile);
    });
    await streams.answering();
    await eventually(async () => (await Promise.all(STREAMS.map(streamIsThere(stack)))).every(Boolean), "all streams");
    // The process that only reads reconnects by itself, a moment later.
    await eventually(async () => (await reads.home("reader-0", { limit: 100 })).degraded, "pages say so");
    await ready(service);
    await readiness.stop();
    heal();
    const after = drops(world, STAYING, 60, 10);
    await stack.publish(...after);
    await readUntilWhole(reads, "reader-0", 69);
    await streams.settledWith(50, 30_000);
    await expectLoaded(stack.redis, READERS, [...before, ...lost, ...gone, ...meanwhile, ...after]);
    expect(await streams.count("DLQ")).toBe(0);
    expect([...readiness.faults].join("\n")).toMatch(/NATS/);
  },
);

const streamIsThere =
  ({ streams }: Stack) =>
  (name: string): Promise<boolean> =>
    streams.manager.streams.info(name).then(
      () => true,
      () => false,
    );

// Invariant 5.
testWithStack(
  "NATS and Redis come back without their data at once: all pages are whole in the end",
  { ...OPTIONS, slow: true },
  async (stack) => {
    const { streams, world, reads, redisServer, service } = stack;
    const history = drops(world, READERS, 0, 40);
    await stack.publish(...history);
    await streams.settled(history.length);
    await progressRecorded(stack);
    redisServer.kill("SIGKILL");
    await redisServer.exited;
    await loseNats(stack);
    const redis = await startRedis({ dir: `${redisServer.dir}/empty`, port: redisServer.port });
    stack.afterServices(() => redis.stop());
    await ready(service);
    const expected = world.homeOf("reader-0").map(({ drop_id }) => drop_id);
    for (const read of [(query: object) => reads.home("reader-0", query), reads.local, reads.global]) {
      await eventually(
        async () => {
          const page = await read({ limit: 100 }).catch(() => undefined);
          if (page?.degraded === false) expect(page.drop_ids).toEqual(expected);
          return page?.degraded === false;
        },
        "the page is whole",
        40_000,
      );
    }
  },
);

// Invariant 5.
testWithStack(
  "a lost log is filled again from the upstreams, in the background",
  { ...OPTIONS, slow: true, timeoutMs: 120_000 },
  async (stack) => {
    const { streams, world, reads, service, redis } = stack;
    const created_at = Date.now() - 20_000_000;
    const old = { drop_id: "old", user_id: "alice", visibility: "public" as const, created_at };
    world.post(old);
    // It changed hours ago, as far as the upstream can tell.
    world.touch("old", created_at);
    const history = [created(old), ...drops(world, READERS, 0, 5)];
    await stack.publish(...history);
    await streams.settled(history.length);
    await progressRecorded(stack);
    await loseNats(stack);
    await ready(service);
    await eventually(
      () => /the log is filled again with everything/.test(service.output()),
      "the log is filled again",
      90_000,
    );
    await streams.settledWith(history.length, 30_000);
    await redis.flushall();
    const page = await reads.local({ limit: 100 });
    expect([page.degraded, page.drop_ids.length, page.drop_ids.at(-1)]).toEqual([false, 6, "old"]);
  },
);

testWithStack(
  "a lost log is logged as an error if the upstreams cannot list changes, and work goes on",
  { ...OPTIONS, slow: true, reconciliation: false },
  async (stack) => {
    const { streams, world, service, reads } = stack;
    const before = drops(world, READERS, 0, 5);
    await stack.publish(...before);
    await streams.settled(before.length);
    await progressRecorded(stack);
    await loseNats(stack);
    await ready(service);
    const after = drops(world, READERS, 5, 5);
    await stack.publish(...after);
    await readUntilWhole(reads, "reader-0", 10);
    expect(service.output()).toMatch(/"level":"error"[^\n]*the log was lost, and the upstream cannot list changes/);
  },
);

/** No process knows her followers yet, so that her drops wait for the upstream. */
const UNKNOWN_AUTHOR = "bella";

/** Her drops stay pending until it is healed. Jobs are made only from pages that are answered. */
const heldUp = (stream: string): Fault => ({
  method: "GetFollowersList",
  ...(stream === "FANOUT" ? { delayMs: 1_000 } : { code: status.UNAVAILABLE }),
});

for (const stream of ["DROPS", "FANOUT", "NOTIFY", "DLQ"]) {
  // Invariant 1.
  testWithStack(
    `${stream} is deleted under load: it is made again, not ready meanwhile, and nothing is lost`,
    { ...OPTIONS, slow: stream !== "DROPS" },
    async (stack) => {
      const { streams, world, service, upstreams, reads } = stack;
      const before = drops(world, READERS, 0, 10);
      await stack.publish(...before);
      await streams.settled(before.length);
      await reads.home("reader-0");
      await progressRecorded(stack);
      // Some wait in the log, and the last of them as jobs, when the stream goes.
      const heal = upstreams.inject(heldUp(stream));
      const during = dropsOf(UNKNOWN_AUTHOR, world, READERS, { from: 10, count: 20 });
      await stack.publish(...during);
      await eventually(async () => (await streams.count("DROPS")) >= 25, "most are admitted");
      expect(await streams.unfinished()).toBeGreaterThan(0);
      const readiness = followReadiness(service);
      const gone = await streams.manager.streams.info(stream);
      await streams.manager.streams.delete(stream);
      await eventually(async () => {
        const held = await streams.manager.streams.info(stream).catch(() => undefined);
        return held !== undefined && held.created !== gone.created;
      }, "it is made again");
      heal();
      const after = drops(world, READERS, 30, 10);
      await stack.publish(...after);
      // No page depends on these two: what is still pending makes a page shorter, not degraded.
      if (stream === "NOTIFY" || stream === "DLQ") await streams.settled(40, 30_000);
      await readUntilWhole(reads, "reader-0", 40);
      await ready(service);
      await readiness.stop();
      expect([...readiness.faults].join("\n")).toMatch(new RegExp(`NATS: [^\n]*${stream}`));
      await streams.settledWith(10, 30_000);
      await expectLoaded(stack.redis, READERS, [...before, ...during, ...after], [AUTHOR, UNKNOWN_AUTHOR]);
      expect(await streams.count("DLQ")).toBe(0);
    },
  );
}

for (const [stream, consumer] of [
  ["DROPS", "planner"],
  ["DROPS", "graph"],
  ["FANOUT", "worker"],
] as const) {
  // Invariant 1.
  testWithStack(
    `the consumer ${consumer} is deleted under load: it is made again and goes on where it was`,
    { ...OPTIONS, slow: consumer !== "planner" },
    async (stack) => {
      const { streams, world, service, upstreams } = stack;
      const before = drops(world, READERS, 0, 10);
      await stack.publish(...before);
      await streams.settled(before.length);
      await progressRecorded(stack);
      const heal = upstreams.inject(heldUp(stream));
      const during = dropsOf(UNKNOWN_AUTHOR, world, READERS, { from: 10, count: 20 });
      const edges = [unfollowed("reader-2", "alice", world.unfollow("reader-2", "alice"))];
      await stack.publish(...during, ...edges);
      await eventually(async () => (await streams.count("DROPS")) >= 25, "most are admitted");
      expect(await streams.unfinished()).toBeGreaterThan(0);
      const readiness = followReadiness(service);
      const gone = await streams.manager.consumers.info(stream, consumer);
      await streams.manager.consumers.delete(stream, consumer);
      await eventually(async () => {
        const held = await streams.manager.consumers.info(stream, consumer).catch(() => undefined);
        return held !== undefined && held.created !== gone.created;
      }, "it is made again");
      heal();
      const all = [...before, ...during, ...edges];
      await streams.settledWith(all.length, 40_000);
      await ready(service);
      await readiness.stop();
      expect([...readiness.faults].join("\n")).toMatch(new RegExp(`NATS: [^\n]*${consumer}`));
      await expectLoaded(stack.redis, READERS, all, [AUTHOR, UNKNOWN_AUTHOR]);
      const { config } = await streams.manager.consumers.info(stream, consumer);
      // The log is not handed out from its beginning again.
      if (stream === "DROPS") expect(config.opt_start_seq).toBeGreaterThanOrEqual(before.length + 1);
      // The start of a consumer is no difference to what is declared: a process that starts now takes it as it is.
      const other = await stack.start({ roles: "fanout" });
      await other.stop();
    },
  );
}

testWithStack(
  "a stream that is replaced by a wrong one is refused while running, until it is corrected",
  OPTIONS,
  async (stack) => {
    const { streams, service } = stack;
    const { config } = await streams.manager.streams.info("COMPLETIONS");
    const { manager } = streams;
    await manager.streams.delete("COMPLETIONS");
    // In any order: in the end it stands in another way than declared.
    await eventually(async () => {
      await manager.streams.delete("COMPLETIONS").catch(() => undefined);
      const { storage: _, ...rest } = config;
      const made = await manager.streams.add({ ...rest, storage: "memory" as never }).catch(() => undefined);
      return made !== undefined;
    }, "it stands in another way");
    await eventually(async () => /COMPLETIONS exists with other/.test(await notReady(service)), "it is refused");
    const told = /"level":"error"[^\n]*COMPLETIONS exists with other/;
    await eventually(() => told.test(service.output()), "an error in the log says so");
    await manager.streams.delete("COMPLETIONS");
    await ready(service);
    expect((await manager.streams.info("COMPLETIONS")).config.storage).toBe("file");
  },
);

testWithStack(
  "every drop is created once in a log that is lost again and again",
  { ...OPTIONS, slow: true, timeoutMs: 120_000 },
  async (stack) => {
    const { streams, world, service, reads } = stack;
    const history: TimelineEvent[] = [];
    for (let round = 0; round < 3; round++) {
      const some = drops(world, READERS, round * 10, 10);
      history.push(...some);
      await stack.publish(...some);
      await eventually(async () => (await streams.count("DROPS")) > 0, "some are admitted");
      await streams.manager.streams.delete("DROPS");
      await eventually(() => streamIsThere(stack)("DROPS"), "it is made again");
    }
    const drop = { drop_id: "last", user_id: "alice", visibility: "public" as const, created_at: Date.now() };
    world.post(drop);
    const last = created(drop);
    await stack.publish(last);
    await readUntilWhole(reads, "reader-0", 31);
    await ready(service);
  },
);
