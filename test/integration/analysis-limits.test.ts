import { afterAll, beforeAll, expect, test } from "@jest/globals";
import fc from "fast-check";
import { v7 } from "uuid";
import { USER_TIERS, type UserTier } from "../../src/contracts/analysis.js";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import { readsKey } from "../../src/state/keys.js";
import { createRateLimit, HOURLY } from "../../src/state/limits/analyses.redis.js";
import { call, post, sharedAnalysisBench } from "../support/analysis-http.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { redisStateOn } from "../support/state.js";

const bench = sharedAnalysisBench();
let own: RedisBench;
beforeAll(async () => {
  own = await openRedis();
});
afterAll(() => own.close());

const HOUR = 3_600_000;
const limitsOf = (headers: Headers) =>
  ["limit", "remaining", "reset", "policy"].map((name) => headers.get(`ratelimit-${name}`));

test.each(Object.entries(HOURLY).slice(0, 2))(
  "%s: %d are taken, and the next one is told how long to wait",
  async (tier, most) => {
    const user = `limit-${tier}`;
    for (let count = 1; count <= most; count++) {
      const { status, headers } = await post(bench.url, user, { tier });
      expect([status, ...limitsOf(headers).slice(0, 2)]).toEqual([202, String(most), String(most - count)]);
    }
    const { status, headers, body } = await post(bench.url, user, { tier });
    expect([status, body.status, ...limitsOf(headers)]).toEqual([
      ...[429, 429, String(most), "0"],
      ...[headers.get("retry-after"), `${most};w=3600`],
    ]);
    const wait = Number(headers.get("retry-after"));
    expect(wait).toBeGreaterThan(3_000);
    expect(wait).toBeLessThanOrEqual(3_600);
  },
);

test("neither refusals nor reads count", async () => {
  for (const body of [{}, { did: "bob", type: "full" }, { did: "did:x:y", type: "flow" }, "{"])
    for (let count = 0; count < 4; count++) expect((await post(bench.url, "rae", { body })).status).toBeLessThan(500);
  for (let count = 0; count < 12; count++)
    expect((await call(`${bench.url}/api/v1/timeline/analyses`, { user: "rae" })).status).toBe(200);
  const { headers } = await post(bench.url, "rae");
  expect(limitsOf(headers)[1]).toBe("9");
});

test("a user who reads without end is told to wait; others and new requests are not", async () => {
  const list = (user: string) => call(`${bench.url}/api/v1/timeline/analyses`, { user });
  const key = readsKey("ria");
  expect((await list("ria")).status).toBe(200);
  expect(Number(await bench.redis.raw.hget(key, "parts"))).toBeGreaterThan(0);
  const at = String(Date.now());
  await bench.redis.raw.hset(key, { parts: "0", at, held: String(Date.now() + HOUR) });
  for (const path of ["timeline/analyses", `timeline/analyses/${v7()}`, "xp"]) {
    const { status, headers } = await call(`${bench.url}/api/v1/${path}`, { user: "ria" });
    expect([path, status]).toEqual([path, 429]);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(3_000);
  }
  expect((await list("sam")).status).toBe(200);
  expect((await post(bench.url, "ria")).status).toBe(202);
  await bench.redis.raw.del(key);
  expect((await list("ria")).status).toBe(200);
});

// Invariant 11.
test("of requests at once as many are taken as fit", async () => {
  const urls = [bench.url, await bench.another({}), await bench.another({})];
  const answers = await Promise.all(Array.from({ length: 30 }, (_, at) => post(urls[at % 3] as string, "otto")));
  expect(answers.filter(({ status }) => status === 202)).toHaveLength(10);
  expect(answers.filter(({ status }) => status === 429)).toHaveLength(20);
});

test("while Redis is away, or does not answer, requests are taken", async () => {
  const broken = connectRedis(["redis://127.0.0.1:1"], silent);
  const another = (scripts: Scripts) => bench.another({ state: { ...bench.state, ...redisStateOn(scripts) } });
  const url = await another(createScripts(broken));
  const hanging = createScripts(own.client);
  const silentUrl = await another({ ...hanging, run: () => new Promise(() => undefined) });
  for (let count = 0; count < 12; count++) {
    const { status, headers } = await post(url, "paz");
    expect([status, headers.get("ratelimit-limit")]).toEqual([202, null]);
  }
  expect((await post(silentUrl, "paz")).status).toBe(202);
  broken.disconnect();
});

type Step = {
  readonly waitMs: number;
  readonly tier: UserTier;
  readonly request: number;
  readonly act: "take" | "look" | "giveBack";
};

const steps = fc.array(
  fc.record({
    waitMs: fc.oneof(fc.nat(1_000), fc.nat(HOUR / 4), fc.constantFrom(HOUR - 1, HOUR, HOUR + 1)),
    tier: fc.constantFrom(...USER_TIERS.slice(0, 2)),
    request: fc.nat(40),
    act: fc.constantFrom("take", "take", "take", "take", "look", "giveBack"),
  }) as fc.Arbitrary<Step>,
  { maxLength: 80 },
);

/** Every request with its time; what the script does with a sorted set. */
class Model {
  #held: { readonly request: string; readonly at: number }[] = [];

  take(now: number, room: number, request: string) {
    this.#held = this.#held.filter(({ at }) => at > now - HOUR);
    const held = this.#held.some((one) => one.request === request);
    const fits = request !== "" && !held && this.#held.length < room;
    if (fits) this.#held.push({ request, at: now });
    const first = this.#held[Math.max(0, this.#held.length - room)];
    return {
      counted: held || fits,
      limit: room,
      remaining: Math.max(0, room - this.#held.length),
      resetSeconds: first === undefined ? 0 : Math.ceil((first.at + HOUR - now) / 1_000),
    };
  }

  giveBack(request: string): void {
    this.#held = this.#held.filter((one) => one.request !== request);
  }
}

// Invariant 11.
test("the limit is that of a list of all requests of the last hour, whatever the order of requests and tiers", async () => {
  let run = 0;
  await fc.assert(
    fc.asyncProperty(steps, async (history) => {
      let now = 1_700_000_000_000;
      const user = `model-${run++}`;
      const model = new Model();
      const limit = createRateLimit(own.scripts, () => now);
      for (const { waitMs, tier, request: number, act } of history) {
        now += waitMs;
        const request = `r${number}`;
        if (act === "giveBack") {
          await limit.giveBack(user, request);
          model.giveBack(request);
        } else {
          const seen = act === "take" ? limit.take(user, tier, request) : limit.look(user, tier);
          expect(await seen).toEqual(model.take(now, HOURLY[tier], act === "take" ? request : ""));
        }
      }
      const ttl = await own.raw.pttl(`timeline:x:asked:${user}`);
      expect(ttl === -2 || (ttl > 0 && ttl <= HOUR)).toBe(true);
    }),
    { numRuns: 100 },
  );
});
