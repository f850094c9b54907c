import { expect, test } from "@jest/globals";
import { jsonOf, startCommand } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { runMain, type ServiceProcess } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { type Stack, sharedStack, testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const READERS = Array.from({ length: 40 }, (_, number) => `reader-${number}`);
const ODD = "ünlesbar: {1}";
const EVERYBODY = [...READERS, ODD];

type Rebuilt = { readonly rebuilt: number; readonly failures: number; readonly after: string | null };

const onStack = sharedStack();

/** Homes that were read, and so are complete. Each test mends what it spoils. */
async function complete({ world, publish, streams, reads }: Stack): Promise<void> {
  if (world.find("d-0") !== undefined) return;
  for (const reader of EVERYBODY) world.follow(reader, "alice");
  const now = Date.now();
  const drops = Array.from({ length: 30 }, (_, number) => ({
    drop_id: `d-${number}`,
    user_id: "alice",
    visibility: "public" as const,
    created_at: now - 3_600_000 + number,
  }));
  world.post(...drops);
  await publish(...drops.map(created));
  await streams.settled(drops.length);
  for (const reader of EVERYBODY) expect((await reads.home(reader)).degraded).toBe(false);
}

/** Makes a complete home wrong in every way, and leaves it complete. */
async function spoil({ redis }: Stack, user: string): Promise<void> {
  const { entries } = await held(redis, homeKey(user));
  await redis.zrem(homeKey(user), "d-7", "d-29");
  await redis.zadd(homeKey(user), 5, "d-1", Date.now(), "d-2", Date.now() - 1_000, "never");
  expect(entries).toHaveLength(30);
}

async function expectRight({ redis, world }: Stack, ...users: readonly string[]): Promise<void> {
  for (const user of users) {
    const entries = world.homeOf(user).map(({ drop_id, created_at }) => [drop_id, created_at]);
    expect({ user, ...(await held(redis, homeKey(user))) }).toEqual({ user, entries, floor: 0 });
  }
}

onStack("a complete but wrong home is rebuilt, and nobody is told", async (stack) => {
  await complete(stack);
  const stream = await openEvents(stack.service.httpUrl, "reader-1");
  for (const user of ["reader-1", ODD]) await spoil(stack, user);
  const report = await jsonOf<Rebuilt>(stack, ["timeline", "rebuild", "reader-1", ODD, "nobody-yet"]);
  expect(report).toEqual({ rebuilt: 3, failures: 0, failed: [], complete: true, after: null });
  await expectRight(stack, "reader-1", "reader-2", ODD);
  expect([stream.events, stream.isOver()]).toEqual([[], false]);
  stream.close();
});

onStack("all homes and the shared timelines, stopped in between and gone on with", async (stack) => {
  await complete(stack);
  for (const user of EVERYBODY) await spoil(stack, user);
  await stack.redis.zrem("timeline:local", "d-3");
  await stack.redis.zadd("timeline:global", 77, "never");
  const first = startCommand(stack, ["timeline", "rebuild", "--all", "--rate", "20", "--json"]);
  const right = async (): Promise<number> => {
    const scores = await Promise.all(EVERYBODY.map((user) => stack.redis.zscore(homeKey(user), "d-7")));
    return scores.filter((score) => score !== null).length;
  };
  await eventually(async () => (await right()) >= 5, "some are rebuilt");
  first.signal("SIGINT");
  expect(await first.exited).toEqual({ code: 130, signal: null });
  const stopped = JSON.parse(first.output()) as Rebuilt;
  expect(stopped.rebuilt).toBeLessThan(EVERYBODY.length);
  const args = ["timeline", "rebuild", "--all", "--shared", "--rate", "1000"];
  const rest = await jsonOf<Rebuilt>(stack, [...args, "--after", String(stopped.after)]);
  expect(rest).toMatchObject({ failures: 0, complete: true });
  await expectRight(stack, ...EVERYBODY);
  for (const key of ["timeline:local", "timeline:global"])
    expect((await held(stack.redis, key)).entries.map(([id]) => id)).toEqual(
      stack.world.homeOf("alice").map(({ drop_id }) => drop_id),
    );
  const stale = startCommand(stack, ["timeline", "rebuild", "--all", "--after", "0000-5"]);
  expect([(await stale.exited).code, stale.errors()]).toEqual([1, expect.stringMatching(/start from the beginning/)]);
});

onStack("while a home is rebuilt its entries stay, and what is published meanwhile lands", async (stack) => {
  await complete(stack);
  const { world, publish, streams, redis, upstreams } = stack;
  await spoil(stack, "reader-1");
  const heal = upstreams.inject({ method: "GetDropsByUserID", delayMs: 700 });
  const rebuilding = startCommand(stack, ["timeline", "rebuild", "reader-1"]);
  await eventually(async () => ((await held(redis, homeKey("reader-1"))).floor ?? 0) < 0, "the rebuild has begun");
  expect((await held(redis, homeKey("reader-1"))).entries).toHaveLength(29);
  const fresh = { drop_id: "fresh", user_id: "alice", visibility: "public", created_at: Date.now() } as const;
  const before = await streams.count("DROPS");
  world.post(fresh);
  await publish(created(fresh));
  await streams.settled(before + 1);
  expect((await rebuilding.exited).code).toBe(0);
  heal();
  await expectRight(stack, "reader-1");
});

// It takes the upstreams from the stack, and so comes last.
onStack("with an upstream away it ends, and says what failed", async (stack) => {
  await complete(stack);
  await stack.upstreams.stop();
  const run = startCommand(stack, ["timeline", "rebuild", ...READERS, "--rate", "1000"]);
  expect((await run.exited).code).toBe(1);
  expect(run.output()).toMatch(/^0 timelines rebuilt, \d+ failed\n.*UNAVAILABLE/s);
  expect(run.output()).toMatch(/stopped before the end/);
});

testWithStack("where the homes cannot be listed it names the position", { service: false }, async (stack) => {
  const { redis, upstreams } = stack;
  for (const reader of READERS) await redis.zadd(homeKey(reader), 0, "~floor");
  const first = startCommand(stack, ["timeline", "rebuild", "--all", "--rate", "2", "--json"]);
  const begun = () => READERS.filter((reader) => upstreams.calls("GetFollowingList", reader) > 0).length > 1;
  await eventually(begun, "a home is rebuilt");
  first.signal("SIGINT");
  await first.exited;
  const { after } = JSON.parse(first.output()) as Rebuilt;
  const args = ["timeline", "rebuild", "--all", "--rate", "1000", "--after", String(after)];
  await redis.acl("SETUSER", "default", "-scan");
  stack.defer(async () => void (await redis.acl("SETUSER", "default", "+scan")));
  const stopped = startCommand(stack, args);
  expect([(await stopped.exited).code, stopped.errors()]).toEqual([
    1,
    expect.stringMatching(`; to continue: --after ${after}`),
  ]);
  await redis.acl("SETUSER", "default", "+scan");
  expect(await jsonOf<Rebuilt>(stack, args)).toMatchObject({ failures: 0, complete: true });
});

test("a command line that makes no sense says so with code 2", async () => {
  const wrong: ReadonlyArray<readonly [args: readonly string[], says: RegExp]> = [
    [[], /^error: say which timelines/],
    [["--after", "x-1"], /^error: --after goes with --all/],
    [["ada", "--all"], /^error: .*not both/],
    [["ada", "--rate", "0"], /^error: .*--rate/],
  ];
  const runs = wrong.map(([args]) => runMain(["timeline", "rebuild", ...args], {}));
  for (const [position, [args, says]] of wrong.entries()) {
    const run = runs[position] as ServiceProcess;
    expect([args, (await run.exited).code, run.errors()]).toEqual([args, 2, expect.stringMatching(says)]);
  }
});
