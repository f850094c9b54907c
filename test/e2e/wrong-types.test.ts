import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted } from "../support/timeline-events.js";
import { changeType, heldBy, homeKey } from "../support/timeline-keys.js";

const FOLLOWERS = Array.from({ length: 20 }, (_, number) => `f${number}`);
const BROKEN = "f7";
const START = Date.now() - 60_000;

/** Every key of Redis that an event of a drop touches. */
async function spoil({ redis }: Stack): Promise<void> {
  const keys = [homeKey(BROKEN), "timeline:local", "timeline:global", "timeline:tombstones", "sse_recent:connections"];
  const more = (await redis.keys("timeline:x:*")).filter((key) => !key.startsWith("timeline:x:continuity"));
  await changeType(redis, [...keys, ...more]);
}

// Invariant 8.
testWithStack(
  "keys of a wrong type are removed and built again: no event fails, all listeners are told, and deletions are complete",
  {},
  async (stack) => {
    const { world, streams, redis, service, reads } = stack;
    for (const follower of FOLLOWERS) world.follow(follower, "ada");
    const post = (drop_id: string, minute: number) => {
      const drop = { drop_id, user_id: "ada", visibility: "public" as const, created_at: START + minute };
      world.post(drop);
      return created(drop);
    };
    const stream = await openEvents(service.httpUrl, "f1");
    const broken = await openEvents(service.httpUrl, BROKEN);
    await stack.publish(post("first", 1), post("second", 2));
    await streams.settled(2);
    for (const user of FOLLOWERS) await reads.home(user);

    await spoil(stack);
    await stack.publish(post("third", 3));
    await streams.settled(3);
    await spoil(stack);
    world.remove("first");
    await stack.publish(deleted("first", "ada"));
    await streams.settled(4);

    expect(await streams.count("DLQ")).toBe(0);
    await eventually(() => stream.drops().includes("third") && broken.drops().includes("third"), "listeners are told");
    await stream.waitFor("drop_deleted");
    const others = FOLLOWERS.filter((user) => user !== BROKEN);
    for (const [key, { entries }] of await heldBy(redis, others.map(homeKey)))
      expect([key, entries.map(([id]) => id)]).toEqual([key, ["third", "second"]]);
    const whole = { degraded: false, drop_ids: ["third", "second"] };
    for (const user of FOLLOWERS) await eventually(async () => !(await reads.home(user)).degraded, "the home is whole");
    expect(await reads.home(BROKEN)).toMatchObject(whole);
    await eventually(async () => !(await reads.local()).degraded, "local is whole");
    expect(await reads.local()).toMatchObject(whole);
    expect(await reads.global()).toMatchObject(whole);
    expect(await redis.zscore("timeline:tombstones", "first")).not.toBeNull();
    const lines = service
      .output()
      .split("\n")
      .filter((line) => line.includes("keys of a wrong type"));
    expect(lines.join("\n")).toContain(homeKey(BROKEN));
    expect(lines.join("\n")).toContain("timeline:tombstones");
  },
);
