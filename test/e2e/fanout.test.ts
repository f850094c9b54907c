import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { samplesOf } from "../support/scrape.js";
import type { Service } from "../support/service.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, type TimelineEvent } from "../support/timeline-events.js";
import { heldBy, homeKey } from "../support/timeline-keys.js";

const FOLLOWERS = Array.from({ length: 5_000 }, (_, number) => `follower-${number}`);
const POSTS = 50;
const START = Date.now() - 3_600_000;

function popular({ world }: Stack, posts = POSTS): TimelineEvent[] {
  for (const follower of FOLLOWERS) world.follow(follower, "star");
  world.dateFollows(START);
  const drops = Array.from({ length: posts }, (_, number) => {
    return { drop_id: `hit-${number}`, user_id: "star", visibility: "public" as const, created_at: START + number };
  });
  world.post(...drops);
  return drops.map(created);
}

/** Every follower's home and the author's own hold exactly these drops with exact scores. */
async function expectLanded({ redis }: Stack, history: readonly TimelineEvent[]): Promise<void> {
  const expected = history.flatMap((event) =>
    event.channel === "drop_created" ? [[event.payload.drop_id, event.payload.created_at]] : [],
  );
  expected.reverse();
  const users = ["star", ...FOLLOWERS];
  const homes = await heldBy(redis, users.map(homeKey));
  const text = JSON.stringify(expected);
  const wrong = users.filter((user) => JSON.stringify(homes.get(homeKey(user))?.entries) !== text);
  expect({ wrong: wrong.length, such: wrong.slice(0, 3).map((user) => homes.get(homeKey(user))) }).toEqual({
    wrong: 0,
    such: [],
  });
}

/** Times each drop was reported as done. */
async function completions({ streams }: Stack): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  for (const { subject, body } of await streams.all("COMPLETIONS")) {
    if (!/^completed\.fanout(\.|$)/.test(subject)) continue;
    const { drop_id } = JSON.parse(body.toString()) as { drop_id: string };
    found.set(drop_id, (found.get(drop_id) ?? 0) + 1);
  }
  return found;
}

async function expectReported(stack: Stack, history: readonly TimelineEvent[]): Promise<void> {
  const ids = history.flatMap((event) => ("drop_id" in event.payload ? [event.payload.drop_id] : [])).sort();
  await eventually(async () => (await completions(stack)).size >= ids.length, "every fan-out is reported");
  expect([...(await completions(stack)).keys()].sort()).toEqual(ids);
}

testWithStack(
  "50 posts to 5,000 followers all land and each is reported done once",
  { timeoutMs: 120_000 },
  async (stack) => {
    const history = popular(stack);
    await stack.publish(...history);
    await stack.streams.settled(history.length, 60_000);
    await expectLanded(stack, history);
    await expectReported(stack, history);
    expect([...(await completions(stack)).values()].filter((times) => times !== 1)).toEqual([]);
    expect(await stack.streams.count("DLQ")).toBe(0);
    expect(await stack.streams.count("FANOUT")).toBe(0);
  },
);

/** Number of jobs of fan-out that a process has finished. */
async function jobsDone({ httpUrl }: Service): Promise<number> {
  const samples = samplesOf(await (await fetch(`${httpUrl}/metrics`)).text());
  const own = samples.filter(
    ({ name, labels }) => name === "timeline_deliveries_total" && labels["consumer"] === "worker",
  );
  return own.reduce((sum, { value }) => sum + value, 0);
}

testWithStack(
  "three processes share the work of the same fan-out",
  { slow: true, timeoutMs: 120_000 },
  async (stack) => {
    const services = [stack.service, await stack.start(), await stack.start({ roles: "fanout" })];
    const history = popular(stack);
    await stack.publish(...history);
    await stack.streams.settled(history.length, 60_000);
    await expectLanded(stack, history);
    await expectReported(stack, history);
    const shares = await Promise.all(services.map(jobsDone));
    expect(shares.every((share) => share > 0)).toBe(true);
  },
);

// Invariant 1.
testWithStack(
  "a process killed in the middle loses nothing: what it had is delivered again",
  // Its messages are delivered again after this time.
  { env: { TIMELINE_ACK_WAIT_MS: "3500" }, timeoutMs: 150_000 },
  async (stack) => {
    const posts = 25;
    const history = popular(stack, posts);
    await stack.publish(...history);
    const landed = async (): Promise<number> => stack.redis.zcard(homeKey("follower-0"));
    await eventually(
      async () => (await stack.streams.count("DROPS")) === posts && (await landed()) >= 1,
      "the fan-out is under way",
    );
    await stack.service.crash();
    expect(await stack.streams.unfinished()).toBeGreaterThan(0);
    await stack.start();
    await stack.streams.settledWith(history.length, 90_000);
    await expectLanded(stack, history);
    await expectReported(stack, history);
    expect(await stack.streams.count("DLQ")).toBe(0);
  },
);
