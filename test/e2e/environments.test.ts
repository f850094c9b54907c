import { expect } from "@jest/globals";
import { Redis } from "ioredis";
import { privateRedis } from "../support/brokers.js";
import { startCommand } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { progressRecorded } from "../support/progress-recorded.js";
import { launchService } from "../support/service.js";
import { type Stack, startStack, testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";
import { heldBy, homeKey } from "../support/timeline-keys.js";

const RECORD = "timeline:x:continuity:{0}";
const OPTIONS = { timeoutMs: 90_000 };

/** The name of the Redis that the log belongs to. */
async function boundTo({ streams }: Stack): Promise<string | undefined> {
  const { config } = await streams.manager.streams.info("DROPS");
  return /of the Redis (\S+)$/.exec(config.description ?? "")?.[1];
}

/** The name that a Redis has. */
const nameOf = async (redis: Redis): Promise<string | undefined> =>
  (JSON.parse((await redis.hget(RECORD, "log")) ?? "{}") as { redis?: string }).redis;

async function named(stack: Stack, redis = stack.redis): Promise<string> {
  await eventually(async () => (await nameOf(redis)) !== undefined, "the Redis has a name");
  const name = await nameOf(redis);
  expect(await boundTo(stack)).toBe(name);
  return String(name);
}

/** Starts a process of some roles on these servers, which must refuse to start; returns what it says. */
async function refused(stack: Stack, redisUrl: string, roles: string): Promise<string> {
  const process = await launchService({ ...stack.serviceOptions, redisUrl, roles });
  stack.defer(() => process.stop());
  expect([roles, (await process.exited).code]).toEqual([roles, 2]);
  return process.errors();
}

// Invariant 1.
testWithStack("a process of another environment, with a Redis of its own, does not start", OPTIONS, async (stack) => {
  const name = await named(stack);
  const other = await startStack();
  stack.defer(() => other.stop());
  const otherName = await named(other);
  expect(otherName).not.toBe(name);
  for (const roles of ["fanout", "bridge", "api"]) {
    const said = await refused(stack, other.redisServer.url, roles);
    expect(said).toContain(`This log belongs to the Redis ${name}, and this Redis is ${otherName}`);
    expect(said).toContain("REDIS_URL, NATS_URL");
  }
  const { serviceOptions } = stack;
  const mixed = { serviceOptions: { ...serviceOptions, redisUrl: other.redisServer.url } };
  const command = startCommand(mixed, ["timeline", "rebuild", "ada"]);
  expect([(await command.exited).code === 0, command.errors()]).toEqual([false, expect.stringContaining(name)]);
  // Its events are all where they belong.
  stack.world.follow("bob", "ada");
  const drop = { drop_id: "d", user_id: "ada", visibility: "public" as const, created_at: Date.now() };
  await stack.publish(created(drop));
  await stack.streams.settled(1);
  expect((await heldBy(stack.redis, [homeKey("bob")])).get(homeKey("bob"))?.entries).toEqual([["d", drop.created_at]]);
});

// Invariant 1.
testWithStack(
  "a Redis that is emptied, and a log that is made anew, get their name back from the other",
  OPTIONS,
  async (stack) => {
    const { redis, streams } = stack;
    const name = await named(stack);
    await redis.flushall();
    await stack.start({ roles: "api" });
    expect(await named(stack)).toBe(name);
    await streams.manager.streams.delete("DROPS");
    await eventually(async () => (await boundTo(stack).catch(() => undefined)) === name, "the new log has it", 30_000);
    await progressRecorded(stack);
    await stack.service.stop();
    // Without a name, as those of earlier versions.
    await redis.hset(RECORD, "log", JSON.stringify({ drops: "", fanout: "", last: 0, acked: 0 }));
    const { config } = await streams.manager.streams.info("DROPS");
    await streams.manager.streams.update("DROPS", { ...config, description: config.description?.split(";")[0] ?? "" });
    await stack.start();
    await named(stack);
  },
);

// Invariant 1.
testWithStack(
  "an empty Redis takes the place of another one once nobody is at work any more",
  OPTIONS,
  async (stack) => {
    const name = await named(stack);
    await stack.service.crash();
    const fresh = await privateRedis();
    stack.defer(() => fresh.stop());
    const redis = new Redis(fresh.url);
    stack.defer(() => redis.disconnect());
    const service = await launchService({ ...stack.serviceOptions, redisUrl: fresh.url });
    stack.defer(() => service.stop());
    await eventually(async () => (await nameOf(redis)) === name, "the new Redis has the name", 30_000);
  },
);

// Invariant 1.
testWithStack(
  "an empty Redis is refused while processes with another one are at work",
  { ...OPTIONS, slow: true },
  async (stack) => {
    const name = await named(stack);
    const fresh = await privateRedis();
    stack.defer(() => fresh.stop());
    const said = await refused(stack, fresh.url, "fanout");
    expect(said).toContain(`This log belongs to the Redis ${name}, whose processes are at work`);
  },
);
