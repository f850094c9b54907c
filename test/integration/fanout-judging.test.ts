import { afterEach, expect, test } from "@jest/globals";
import { createNotify } from "../../src/fanout/publish.nats.js";
import { AppError } from "../../src/kernel/errors.js";
import { RECENT_KEY } from "../../src/state/keys.js";
import { createListenersAmong } from "../../src/state/listeners/listening.redis.js";
import { DROP, followers, handle, openFanout } from "../support/fanout.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { clockOn, NOBODY_ERASED, type ReadHiddenOnce } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created } from "../support/timeline-events.js";

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

function open(count: number, readHidden: ReadHiddenOnce) {
  const notify = createNotify(
    nats.publishAll,
    createListenersAmong(redis.scripts, clockOn(redis.scripts)),
    NOBODY_ERASED,
  );
  return openFanout(redis, followers(count), { readHidden, change: (deps) => ({ ...deps, notify }) });
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
  let atAsking: string[] = [];
  const bench = open(3, async (user) => {
    asked.push(user);
    if (user !== "f0") return new Map();
    atAsking = await stored();
    await hanging;
    return new Map();
  });
  await listen("f1", "f2");
  await post(bench, "d1");
  await listen("f0");
  await post(bench, "d2");
  expect(atAsking).toEqual(["f1: new_drop", "f1: new_drop", "f2: new_drop", "f2: new_drop"]);
  expect(await stored()).toEqual(["f0: reset", ...atAsking]);
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
