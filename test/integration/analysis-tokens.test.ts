import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { codeOf } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { DAY, HOUR, MINUTE, SECOND } from "../../src/kernel/time.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { SOURCE_TOKENS_KEY } from "../../src/state/keys.js";
import { createTokenBucket } from "../../src/state/limits/source-tokens.redis.js";
import { eventually } from "../support/eventually.js";
import { lua } from "../support/lua.js";
import { redisOfFile } from "../support/redis-of-file.js";

const redis = redisOfFile();

const NOW = 1_800_000_000_000;
const never = new AbortController().signal;

interface Asked {
  readonly rate: number;
  readonly burst: number;
  readonly wanted?: 0 | 1;
  readonly hold?: number;
  readonly now: number;
}

async function ask({ rate, burst, wanted = 1, hold = 0, now }: Asked, scripts = redis.scripts) {
  const [wait, left] = (await scripts.run(lua("take-token"), ["bucket"], [rate, burst, wanted, hold, now])) as number[];
  return { wait: wait as number, left: left as number };
}

/**
 * The definition by its bound instead of by a level: a token may be taken if then no stretch of time that ends now has seen
 * more than the burst and what its length adds.
 */
function mayTake(taken: readonly number[], now: number, { rate, burst }: { rate: number; burst: number }): boolean {
  return taken.every((since, index) => (taken.length - index + 1 - burst) * HOUR <= rate * (now - since));
}

function waitOf(taken: readonly number[], now: number, bucket: { rate: number; burst: number }): number {
  const waits = taken.map((since, index) =>
    Math.ceil(((taken.length - index + 1 - bucket.burst) * HOUR) / bucket.rate - (now - since)),
  );
  const wait = Math.max(0, ...waits);
  expect([mayTake(taken, now + wait, bucket), wait > 0 && mayTake(taken, now + wait - 1, bucket)]).toEqual([
    true,
    false,
  ]);
  return wait;
}

const bucket = fc.record({
  rate: fc.constantFrom(7, 60, 1_000, 5_000, 100_000),
  burst: fc.integer({ min: 1, max: 4 }),
});

// Invariant 11.
test("it gives a token exactly when the definition allows it, and says exactly how long to wait", async () => {
  const step = fc.record({
    pass: fc.oneof(fc.nat(2 * SECOND), fc.nat(10 * MINUTE)),
    /** Undefined: a token is taken. */
    hold: fc.option(fc.nat(90 * SECOND), { freq: 1, nil: undefined }),
  });
  await fc.assert(
    fc.asyncProperty(bucket, fc.array(step, { maxLength: 25 }), async (of, steps) => {
      await redis.raw.del("bucket");
      const taken: number[] = [];
      let [now, held] = [NOW, 0];
      for (const { pass, hold } of steps) {
        now += pass;
        if (hold !== undefined) {
          if (hold > 0) held = Math.max(held, now + hold);
          await ask({ ...of, now, wanted: 0, hold });
          continue;
        }
        const wait = Math.max(held - now, waitOf(taken, now, of), 0);
        expect(await ask({ ...of, now })).toMatchObject({ wait });
        if (wait === 0) taken.push(now);
      }
    }),
    { numRuns: 60 },
  );
});

test("a clock that goes back adds nothing, and what it goes forward again counts", async () => {
  const moves = fc.array(fc.integer({ min: -MINUTE, max: MINUTE }), { maxLength: 40 });
  await fc.assert(
    fc.asyncProperty(bucket, moves, async (of, deltas) => {
      await redis.raw.del("bucket");
      const taken: number[] = [];
      let [now, passed] = [NOW, 0];
      for (const delta of deltas) {
        now += delta;
        passed += Math.max(0, delta);
        const { wait } = await ask({ ...of, now });
        expect(wait).toBe(waitOf(taken, passed, of));
        if (wait === 0) taken.push(passed);
      }
    }),
    { numRuns: 40 },
  );
});

// Invariant 11.
test("however many workers ask at once, each token is given once", async () => {
  const clients = [1, 2, 3, 4].map(() => connectRedis([redis.broker.url], silent));
  try {
    for (const client of clients) await eventually(() => client.status === "ready", "a worker is connected");
    const workers = clients.map((client) => createScripts(client));
    const rush = async (now: number): Promise<number> => {
      const asked = Array.from({ length: 200 }, (_, index) =>
        ask({ rate: 5_000, burst: 50, now }, workers[index % workers.length]),
      );
      return (await Promise.all(asked)).filter(({ wait }) => wait === 0).length;
    };
    expect(await rush(NOW)).toBe(50);
    expect(await rush(NOW + 719)).toBe(0);
    expect(await rush(NOW + 7_200)).toBe(10);
    expect(await rush(NOW + DAY)).toBe(50);
  } finally {
    for (const client of clients) client.disconnect();
  }
});

test("users take turns: who took fewer tokens goes first, and who waits no more holds nobody up", async () => {
  const rate = 60;
  const take = async (user: string, now: number): Promise<boolean> => {
    const keys = ["bucket", "{bucket}:taken", "{bucket}:waiting"];
    return ((await redis.scripts.run(lua("take-token"), keys, [rate, 2, 1, 0, now, user])) as number[])[0] === 0;
  };
  for (const from of [NOW, NOW, NOW + MINUTE, NOW + 2 * MINUTE]) expect(await take("greedy", from)).toBe(true);
  expect(await take("greedy", NOW + 2 * MINUTE)).toBe(false);
  expect(await take("modest", NOW + 2 * MINUTE)).toBe(false);
  expect(await take("greedy", NOW + 3 * MINUTE - 1)).toBe(false);
  expect(await take("modest", NOW + 3 * MINUTE - 1)).toBe(false);
  // One token: it is for the one who waits and took fewer.
  expect(await take("greedy", NOW + 3 * MINUTE)).toBe(false);
  expect(await take("modest", NOW + 3 * MINUTE)).toBe(true);
  expect(await take("modest", NOW + 3 * MINUTE)).toBe(false);
  // Nobody has asked for longer than a waiting user is waited for.
  expect(await take("greedy", NOW + 5 * MINUTE)).toBe(true);
});

test("the burst is a hundredth of the rate, and at least one", async () => {
  const takeAll = async (perHour: number): Promise<number> => {
    await redis.raw.flushall();
    const { tryTake, left } = createTokenBucket(redis.scripts, perHour);
    const before = await left();
    let taken = 0;
    while (await tryTake()) taken++;
    expect([before, await left()]).toEqual([taken, 0]);
    return taken;
  };
  expect(await takeAll(1)).toBe(1);
  expect(await takeAll(199)).toBe(1);
  expect(await takeAll(5_000)).toBe(50);
});

test("it waits for a token that is available soon; otherwise the caller has to try again", async () => {
  const soon = createTokenBucket(redis.scripts, 36_000);
  while (await soon.tryTake());
  for (let taken = 0; taken < 3; taken++) await soon.take("ada", never);
  await redis.raw.flushall();
  const late = createTokenBucket(redis.scripts, 60);
  await late.take("ada", never);
  await expect(late.take("ada", never)).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringMatching(/in \d\d s/),
  });
});

test("while the source is held nobody takes a token; a shorter hold does not end a longer one", async () => {
  const [one, other] = [createTokenBucket(redis.scripts, 5_000), createTokenBucket(redis.scripts, 5_000)];
  await one.hold(HOUR);
  await other.hold(SECOND);
  expect(await other.tryTake()).toBe(false);
  await expect(other.take("ada", never)).rejects.toMatchObject({ code: "unavailable" });
  expect(Number(await redis.raw.pttl(SOURCE_TOKENS_KEY))).toBeGreaterThan(HOUR - MINUTE);
  expect(await one.left()).toBe(50);
});

test("while Redis is away a token is an outage", async () => {
  const client = connectRedis(["redis://127.0.0.1:1"], silent);
  try {
    const away = createTokenBucket(createScripts(client), 5_000);
    const refused = await Promise.all(
      [away.take("ada", never), away.tryTake(), away.hold(1)].map((one) => one.then(() => "taken", codeOf)),
    );
    expect(refused).toEqual(["unavailable", "unavailable", "unavailable"]);
  } finally {
    client.disconnect();
  }
});
