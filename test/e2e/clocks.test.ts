import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { HOUR, MINUTE, SECOND } from "../../src/kernel/time.js";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { startCommand } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { shifted } from "../support/other-clock.js";
import { openReader } from "../support/reader.js";
import { launchService, type Service } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { type Stack, sharedStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";

/** The processes of the test have the clock of this machine, as Redis has, but for one. */
const testWithGateway = sharedStack({ roles: "gateway" });

/** Starts a process with another clock. It works, though it is not ready. */
async function startShifted(stack: Stack, roles: string, ms: number): Promise<Service> {
  const service = await launchService({ ...stack.serviceOptions, roles, env: shifted(ms) });
  stack.defer(() => service.stop());
  const said = `the clock of this process is ${Math.abs(ms) / SECOND} s ${ms > 0 ? "ahead of" : "behind"} that of Redis`;
  const reasons = async () => {
    const response = await fetch(`${service.httpUrl}/readyz`).catch(() => undefined);
    return response && `${response.status} ${await response.text()}`;
  };
  await eventually(async () => {
    const found = await reasons();
    return (found?.startsWith("503") && found.includes(said) && !found.includes("start")) || String(found);
  }, "the clock alone keeps the process from being ready");
  await eventually(
    () => service.output().includes(`${said}; this process is not ready until they agree`),
    "the log line",
  );
  return service;
}

// Invariant 5.
testWithGateway("an api whose clock is an hour behind rebuilds homes with their newest drops", async (stack) => {
  const { world } = stack;
  world.follow("reader", "ada");
  const drops = Array.from({ length: 30 }, (_, number) => ({
    ...{ drop_id: `d${number}`, user_id: "ada", visibility: "public" as const },
    created_at: Date.now() - number * 5 * MINUTE,
  }));
  world.post(...drops);
  const api = await startShifted(stack, "api,fanout", -HOUR);
  const reads = openReader(api.grpcAddress);
  stack.defer(() => reads.close());
  // A new log beside drops of the past is filled first.
  await becomes(async () =>
    expect(await reads.home("reader", { limit: 50 })).toMatchObject({
      drop_ids: drops.map(({ drop_id }) => drop_id),
      degraded: false,
    }),
  );
});

// Invariant 5.
testWithGateway(
  "a bridge whose clock is behind admits what is new, and a fanout whose clock is ahead notifies",
  async (stack) => {
    const { world, streams, service } = stack;
    await startShifted(stack, "bridge", -11 * MINUTE);
    await startShifted(stack, "fanout", 11 * MINUTE);
    world.follow("listener", "bob");
    const drop = { drop_id: "news", user_id: "bob", visibility: "public" as const, created_at: Date.now() };
    world.post(drop);
    const stream = await openEvents(service.httpUrl, "listener");
    await stack.publish(created(drop));
    await eventually(() => stream.drops().includes("news"), "the listener is told");
    stream.close();
    expect(await streams.count("DLQ")).toBe(0);
  },
);

testWithGateway(
  "the clock of users and posts steps ahead and back: drops and follows keep their order",
  async (stack) => {
    const { redis } = stack;
    const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
    const folder = await temporaryFolder("clocks");
    stack.defer(() => rm(folder, { recursive: true }));
    const env = { ...own, TIMELINE_DATA_DIR: join(folder, "data"), ...shifted(0, 10 * MINUTE, -10 * MINUTE) };
    const service = await stack.start({ roles: "users,posts,bridge,fanout,api", env });
    const api = openApi(service.grpcAddress);
    stack.defer(() => api.close());
    const [follower_id, following_id] = ["stepping-reader", "stepping-author"];
    const posted: string[] = [];
    const homeOf = async (user: string) =>
      (await redis.zrevrange(`timeline:home:${user}`, 0, -1)).filter((entry) => entry !== "~floor");
    for (const step of [0, 1, 2]) {
      if (step > 0) service.signal("SIGUSR2");
      await api.unfollow({ follower_id, following_id });
      await api.follow({ follower_id, following_id });
      for (let number = 0; number < 3; number++) posted.unshift((await api.post(following_id)).drop_id);
      await becomes(async () => expect(await homeOf(following_id)).toEqual(posted));
    }
    const { drops } = await api.dropsOf({ user_id: following_id, limit: 100, max_id: "", before: 0 });
    expect(drops.map(({ drop_id }) => drop_id)).toEqual(posted);
    expect(Math.abs(Number(drops[0]?.created_at) - Date.now())).toBeLessThan(MINUTE);
    const reads = openReader(service.grpcAddress);
    stack.defer(() => reads.close());
    await becomes(async () =>
      expect(await reads.home(follower_id)).toMatchObject({ drop_ids: posted, degraded: false }),
    );
  },
);

// Invariant 5.
testWithGateway("doctor names a machine whose clock is not that of Redis", async (stack) => {
  const run = startCommand(stack, ["doctor"], { TIMELINE_ROLES: "api", ...shifted(-HOUR) });
  expect((await run.exited).code).toBe(1);
  expect(run.output()).toContain("the clock of this process is 3600 s behind that of Redis");
  const right = startCommand(stack, ["doctor"], { TIMELINE_ROLES: "api" });
  await right.exited;
  expect(right.output()).toContain("its clock and that of this machine agree");
});
