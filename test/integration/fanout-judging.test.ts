import { status } from "@grpc/grpc-js";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { createNotify } from "../../src/fanout/notify.js";
import { createPublishNotifications } from "../../src/fanout/publish.nats.js";
import { AppError } from "../../src/kernel/errors.js";
import { HOUR } from "../../src/kernel/time.js";
import { createReadHiddenTogether } from "../../src/state/hidden/hidden.grpc.js";
import { createHiddenStore } from "../../src/state/hidden/hidden.redis.js";
import { createRelationWriter } from "../../src/state/hidden/relations.redis.js";
import { RECENT_KEY } from "../../src/state/keys.js";
import { connectUpstreams } from "../../src/upstreams/upstreams.grpc.js";
import { DROP, followers, handle, openFanout } from "../support/fanout.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { adaptersOn, NOBODY_ERASED, type ReadHiddenOnce } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created } from "../support/timeline-events.js";
import { type Fault, startUpstreams, type Upstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

const nats = natsOfFile();
const redis = redisOfFile();

afterEach(() => nats.manager.streams.purge("NOTIFY"));

const listen = (...users: string[]) => redis.raw.zadd(RECENT_KEY, ...users.flatMap((user) => [Date.now(), user]));

/** The events that NOTIFY has, each with its user. */
const stored = async (): Promise<string[]> =>
  (await nats.streams.all("NOTIFY"))
    .map(
      ({ subject, body }) => `${subject.split(".").at(-1)}: ${(JSON.parse(String(body)) as { event: string }).event}`,
    )
    .sort();

const LONG_MS = 60_000;

function open(count: number, readHidden: ReadHiddenOnce, { patienceMs = LONG_MS, publishAll = nats.publishAll } = {}) {
  const publish = createPublishNotifications(publishAll);
  const change = (deps: FanoutDeps) => ({ ...deps, notify: createNotify({ ...deps, publish }) });
  return openFanout(redis, followers(count), { readHidden, patienceMs, change });
}

const post = (bench: ReturnType<typeof open>, drop_id: string) =>
  handle(bench, created({ ...DROP, drop_id, created_at: Date.now(), visibility: "followers" }));

// Invariant 5.
test("a listener whose relations cannot be read holds up nobody's events, and is waited for once", async () => {
  const asked: string[] = [];
  let answer = (): void => undefined;
  const hanging = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const published: string[] = [];
  const publishAll: typeof nats.publishAll = async (messages) => {
    const results = await nats.publishAll(messages);
    published.push(...messages.map(({ subject }) => subject.split(".").at(-1) ?? ""));
    return results;
  };
  let atAsking: string[] = [];
  const readHidden = async (user: string) => {
    asked.push(user);
    if (user !== "f0") return new Map();
    atAsking = [...published].sort();
    await hanging;
    return new Map();
  };
  const bench = open(3, readHidden, { patienceMs: 250, publishAll });
  const { hidden } = adaptersOn(redis.scripts, { maxEntries: 100 });
  // Under load their answers might be late.
  for (const user of ["f1", "f2"]) await hidden.fill(user);
  await listen("f1", "f2");
  await post(bench, "d1");
  await listen("f0");
  await post(bench, "d2");
  expect(atAsking).toEqual(["f1", "f1", "f2", "f2"]);
  expect(await stored()).toEqual(["f0: reset", ...atAsking.map((user) => `${user}: new_drop`)]);
  // The question goes on, and nobody waits for it again.
  for (const drop of ["d3", "d4", "d5"]) await post(bench, drop);
  expect((await stored()).filter((event) => event.startsWith("f0"))).toEqual(Array(4).fill("f0: reset"));
  answer();
  expect(asked.filter((user) => user === "f0")).toEqual(["f0"]);
});

// Invariant 5.
test("a failure about a listener is remembered, and one who is answered gets the event itself", async () => {
  const asked: string[] = [];
  const bench = open(2, async (user) => {
    asked.push(user);
    if (user === "f0") throw new AppError("unavailable", "GetHidden");
    return new Map();
  });
  await listen("f0", "f1");
  for (const drop of ["e1", "e2", "e3"]) await post(bench, drop);
  expect(await stored()).toEqual([...Array(3).fill("f0: reset"), ...Array(3).fill("f1: new_drop")]);
  expect(asked.sort()).toEqual(["f0", "f1"]);
});

describe("relations of many users", () => {
  const world = new World();
  const users = Array.from({ length: 200 }, (_, n) => `u${n}`);
  let upstreams: Upstreams;
  let client: ReturnType<typeof connectUpstreams>;

  beforeAll(async () => {
    upstreams = await startUpstreams(world);
    const { usersAddress: userServiceAddr, postsAddress: postServiceAddr } = upstreams;
    client = connectUpstreams({ userServiceAddr, postServiceAddr, tls: {} });
    world.mute("u7", "ada");
    for (let n = 0; n < 150; n++) world.block(`s${n}`, "u8");
    world.block("ada", "u8");
    await client.hidden({ user: "u0", token: "", size: 1 });
  });
  beforeEach(() => redis.raw.flushall());
  afterAll(async () => {
    client.close();
    await upstreams.stop();
  });

  const openRelations = (patienceMs = LONG_MS) => {
    const read = createReadHiddenTogether(client, patienceMs);
    const hidden = createHiddenStore(redis.scripts, read, NOBODY_ERASED, HOUR);
    const asking = { scripts: redis.scripts, hidden, sources: {} as never, judgesReplies: false };
    const relations = createRelationWriter(asking, HOUR, LONG_MS);
    return { hidden, relations };
  };
  const calls = () => [upstreams.calls("GetHiddenOfMany"), upstreams.calls("GetHidden")] as const;

  // Invariant 5.
  test("are read in a few calls before their first event: one who hides very many, or fails, is read alone", async () => {
    const heal = upstreams.inject({ method: "GetHidden", user: "u9", code: status.INTERNAL });
    const before = calls();
    const { relations } = openRelations();
    await relations.learn(users);
    const [together, alone] = calls().map((count, at) => count - (before[at] as number)) as [number, number];
    const seeing = users.filter((user) => !["u7", "u8", "u9"].includes(user));
    expect(await relations.viewersAmong(users, { author: "ada" })).toEqual({ seeing, unknown: ["u9"] });
    expect([upstreams.calls("GetHidden", "u8"), upstreams.calls("GetHidden", "u9")]).toEqual([1, 1]);
    expect(together).toBeLessThanOrEqual(20);
    expect(alone).toBeLessThanOrEqual(20);
    heal();
  });

  // Invariant 5.
  test.each<[string, number, Omit<Fault, "method" | "user">]>([
    ["a service without the call", LONG_MS, { code: status.UNIMPLEMENTED }],
    ["a call that one user spoils", LONG_MS, { code: status.INTERNAL }],
    ["a call that is not answered soon", 20, { delayMs: LONG_MS }],
  ])("are read one by one after %s, which is not made again at once", async (_, patienceMs, fault) => {
    const heal = upstreams.inject({ method: "GetHiddenOfMany", ...fault });
    const before = calls();
    const { hidden, relations } = openRelations(patienceMs);
    await Promise.all(users.map((user) => hidden.fill(user)));
    const [together, alone] = calls().map((count, at) => count - (before[at] as number)) as [number, number];
    expect(alone).toBe(users.length);
    expect(together).toBeLessThanOrEqual(20);
    const seeing = users.filter((user) => user !== "u7" && user !== "u8");
    expect(await relations.viewersAmong(users, { author: "ada" })).toEqual({ seeing, unknown: [] });
    heal();
  });
});
