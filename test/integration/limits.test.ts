import { afterAll, beforeAll, expect, test } from "@jest/globals";
import fc from "fast-check";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import type { Limit } from "../../src/kernel/variables.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { limitKey } from "../../src/state/keys.js";
import {
  createLimits,
  type Limited,
  type LimitedWrite,
  release,
  reserve,
  type Use,
  type Window,
} from "../../src/state/limits/limits.redis.js";
import { freeze } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { openRedis, type RedisBench } from "../support/redis.js";

const HOUR = 3_600_000;

let bench: RedisBench;
beforeAll(async () => {
  bench = await openRedis();
});
afterAll(() => bench.close());

const limitOf = (most: number, withinMs = HOUR): Limit => ({ most, within: `${withinMs}ms`, withinMs });
const useOf = (user: string, most: number, withinMs?: number): Use => ({
  ...{ kind: "reactions", user },
  limit: limitOf(most, withinMs),
});

const CHANGES: LimitedWrite<string> = {
  write: async () => "done",
  changed: () => true,
  changesNothing: async () => false,
};

/** Resolves to "refused" past the limit. */
const once = (limited: Limited, uses: readonly Use[], work: LimitedWrite<string> = CHANGES): Promise<string> =>
  limited(uses, work).catch((error: unknown) => {
    if (error instanceof AppError && error.code === "exhausted") return "refused";
    throw error;
  });

const reservationsOf = (user: string) => bench.raw.zcard(limitKey("reactions", user));

type Step = { readonly waitMs: number; readonly text: number; readonly act: "take" | "look" | "free" };

const steps = fc.array(
  fc.record({
    waitMs: fc.oneof(fc.constant(0), fc.nat(40), fc.constantFrom(99, 100, 101, 299, 300, 301)),
    text: fc.nat(2),
    act: fc.constantFrom("take", "take", "take", "take", "look", "free"),
  }) as fc.Arbitrary<Step>,
  { maxLength: 80 },
);

/** Keys live by the clock of the server: no run takes so long. */
const [DROPS, SAME] = [
  { most: 4, withinMs: 300_000 },
  { most: 2, withinMs: 100_000 },
] as const;

/** Everything that counts, with its time; what the script does with sorted sets. */
class Model {
  #held: { readonly at: number; readonly text: number; readonly id: string }[] = [];
  /** The times of all that were ever taken and never freed. */
  readonly taken: { readonly at: number; readonly text: number; readonly id: string }[] = [];

  take(now: number, text: number, id: string) {
    const before = this.#seen(now, text);
    const fits = id !== "" && before.every(({ used }, index) => used < ([DROPS, SAME][index]?.most ?? 0));
    if (fits) for (const list of [this.#held, this.taken]) list.push({ at: now, text, id });
    return { reserved: fits, seen: this.#seen(now, text) };
  }

  free(id: string): void {
    this.#held = this.#held.filter((one) => one.id !== id);
    const at = this.taken.findIndex((one) => one.id === id);
    if (at >= 0) this.taken.splice(at, 1);
  }

  #seen(now: number, text: number) {
    const within = ({ withinMs }: { withinMs: number }) => this.#held.filter(({ at }) => at > now - withinMs);
    const lists = [within(DROPS), within(SAME).filter((one) => one.text === text)];
    return lists.map((list, index) => {
      const { most, withinMs } = [DROPS, SAME][index] as typeof DROPS;
      const first = list[Math.max(0, list.length - most)];
      return { used: list.length, waitMs: first === undefined ? 0 : first.at + withinMs - now };
    });
  }
}

// Invariant 11.
test("two limits at once are those of a list of all that counts: exact in any window, and in what they say", async () => {
  let run = 0;
  await fc.assert(
    fc.asyncProperty(steps, async (history) => {
      let now = 1_700_000_000_000;
      const model = new Model();
      const user = `model-${run++}`;
      const keyOf = (text: number) => limitKey("same-body", user, `t${text}`);
      const windows = (text: number): Window[] => [
        { key: limitKey("drops", user), ...DROPS },
        { key: keyOf(text), ...SAME },
      ];
      for (const [index, { waitMs, text, act }] of history.entries()) {
        now += 1_000 * waitMs;
        const last = model.taken.at(-1);
        if (act === "free" && last !== undefined) {
          await release(bench.scripts, windows(last.text), last.id);
          model.free(last.id);
        } else {
          const id = act === "take" ? `p${index}` : "";
          const reply = await reserve(bench.scripts, windows(text), id, now);
          expect(reply).toEqual({ ...model.take(now, text, id), mayBeFree: false });
        }
      }
      for (const { at } of model.taken) {
        const together = model.taken.filter((one) => one.at >= at && one.at < at + DROPS.withinMs);
        expect(together.length).toBeLessThanOrEqual(DROPS.most);
      }
      for (const { key, withinMs } of windows(0)) {
        const ttl = await bench.raw.pttl(key);
        expect(ttl === -2 || (ttl > 0 && ttl <= withinMs)).toBe(true);
      }
    }),
    { numRuns: 100 },
  );
});

// Invariant 11.
test("of calls through two connections at once as many pass as fit, and what changed nothing does not count", async () => {
  const other = connectRedis([bench.broker.url], silent);
  await eventually(() => other.status === "ready", "the other process is connected");
  const [first, second] = [createLimits(bench.scripts), createLimits(createScripts(other))];
  const uses = [useOf("otto", 50)];
  let under = 0;
  let most = 0;
  const work: LimitedWrite<string> = {
    ...CHANGES,
    write: async () => {
      most = Math.max(most, ++under);
      await bench.raw.ping();
      under -= 1;
      return "done";
    },
  };
  const idle: LimitedWrite<string> = { ...work, changed: () => false };
  // Some release their reservations while others ask for one: the limit holds all the time.
  await Promise.all(
    Array.from({ length: 200 }, (_, n) =>
      once((n % 2 === 0 ? first : second).limited, uses, n % 3 === 0 ? work : idle),
    ),
  );
  expect(most).toBeLessThanOrEqual(50);
  await Promise.all([first.close(), second.close()]);
  const before = await reservationsOf("otto");
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, n) => once((n % 2 === 0 ? first : second).limited, uses)),
  );
  expect(answers.filter((one) => one === "done")).toHaveLength(50 - before);
  expect(await reservationsOf("otto")).toBe(50);
  other.disconnect();
});

test("a write that changed nothing or failed releases its reservation, at the latest when the process closes", async () => {
  const limits = createLimits(bench.scripts);
  const uses = [useOf("bea", 1)];
  const failing = { ...CHANGES, write: () => Promise.reject(new AppError("invalid", "reply_to: is wrong")) };
  await expect(limits.limited(uses, failing)).rejects.toThrow("reply_to");
  await limits.close();
  expect(await once(limits.limited, uses, { ...CHANGES, changed: () => false })).toBe("done");
  await limits.close();
  expect(await reservationsOf("bea")).toBe(0);
  expect(await once(limits.limited, uses)).toBe("done");
  expect(await once(limits.limited, uses)).toBe("refused");
  expect(await once(limits.limited, uses, { ...CHANGES, changesNothing: async () => true })).toBe("done");
  expect(await reservationsOf("bea")).toBe(1);
});

test("a write that changed nothing releases its reservation also if Redis does not answer at first, for some time", async () => {
  for (const [user, answers] of [
    ["cid", true],
    ["dan", false],
  ] as const) {
    let asked = 0;
    const run: typeof bench.scripts.run = async (...call) => {
      if (call[2]?.[1] !== 0 || (++asked > 2 && answers)) return bench.scripts.run(...call);
      throw new AppError("unavailable", "Redis is away");
    };
    const limits = createLimits({ ...bench.scripts, run });
    expect(await once(limits.limited, [useOf(user, 1)], { ...CHANGES, changed: () => false })).toBe("done");
    if (answers) await eventually(async () => (await reservationsOf(user)) === 0, "the release");
    else await eventually(() => asked > 2, "it tries again");
    await limits.close();
    expect(await reservationsOf(user)).toBe(answers ? 0 : 1);
  }
});

test("a refusal names the limit that lasts longest, and the time to wait; it does not prolong it", async () => {
  const { limited } = createLimits(bench.scripts);
  const uses: Use[] = [
    { kind: "same-body", user: "cid", subject: "text", limit: limitOf(1, HOUR / 2) },
    { kind: "drops", user: "cid", limit: limitOf(1) },
  ];
  await limited(uses, CHANGES);
  const key = limitKey("drops", "cid");
  const ttl = await bench.raw.pttl(key);
  const refused = await limited(uses, CHANGES).catch((error: unknown) => error as AppError);
  expect(refused).toMatchObject({ code: "exhausted", message: "at most 1 drops within 3600000ms" });
  const { retryAfterMs = 0 } = refused as AppError;
  expect(retryAfterMs).toBeLessThanOrEqual(HOUR);
  expect(retryAfterMs).toBeGreaterThan(HOUR - 60_000);
  expect(await bench.raw.pttl(key)).toBeLessThanOrEqual(ttl);
});

test("times are those of the clock of Redis, whatever the clock of the process; a reservation ends once its time has passed", async () => {
  const { limited } = createLimits(bench.scripts);
  const timeOf = async () => {
    const [seconds = 0, micros = 0] = (await bench.raw.time()).map(Number);
    return seconds * 1_000 + Math.floor(micros / 1_000);
  };
  const { now } = Date;
  const before = await timeOf();
  Date.now = () => now() - 10 * HOUR;
  try {
    await limited([useOf("dan", 1, 400)], CHANGES);
  } finally {
    Date.now = now;
  }
  const [, score] = await bench.raw.zrange(limitKey("reactions", "dan"), "0", "0", "WITHSCORES");
  expect(Number(score)).toBeGreaterThanOrEqual(before);
  expect(Number(score)).toBeLessThanOrEqual(await timeOf());
  await eventually(async () => (await once(limited, [useOf("dan", 1, 400)])) === "done", "the end of the reservation");
  expect((await timeOf()) - Number(score)).toBeGreaterThanOrEqual(400);
});

test("a limit that is off asks nothing of Redis", async () => {
  const broken = connectRedis(["redis://127.0.0.1:1"], silent);
  const { limited } = createLimits(createScripts(broken));
  expect(await limited([{ kind: "drops", user: "eve", limit: undefined }], CHANGES)).toBe("done");
  broken.disconnect();
});

test("while Redis is frozen or gone nothing is refused, and no call waits for it long", async () => {
  const own = await openRedis();
  const limits = createLimits(own.scripts);
  const uses = [useOf("fay", 1)];
  const passesSoon = async (): Promise<void> => {
    const started = performance.now();
    expect(await once(limits.limited, uses)).toBe("done");
    expect(performance.now() - started).toBeLessThan(2_000);
  };
  expect(await once(limits.limited, uses)).toBe("done");
  expect(await once(limits.limited, uses)).toBe("refused");
  await freeze(own.broker);
  for (let n = 0; n < 3; n++) await passesSoon();
  await Promise.all(Array.from({ length: 20 }, passesSoon));
  own.broker.kill("SIGKILL");
  await own.broker.exited;
  for (let n = 0; n < 3; n++) await passesSoon();
  const idle = { ...CHANGES, changed: () => false };
  expect(await once(limits.limited, uses, idle)).toBe("done");
  await limits.close();
  await own.close();
});

test("a limit holds where the process stands still while Redis answers", async () => {
  const limits = createLimits(bench.scripts);
  const uses = [useOf("gus", 1)];
  expect(await once(limits.limited, uses)).toBe("done");
  const second = once(limits.limited, uses);
  // Longer than Redis is waited for.
  const until = performance.now() + 500;
  while (performance.now() < until);
  expect(await second).toBe("refused");
});
