import { expect, test } from "@jest/globals";
import type { Standing } from "../../src/contracts/standings.js";
import { silent } from "../../src/kernel/logger.js";
import { STANDINGS_KEY } from "../../src/state/keys.js";
import { createStandings, type StandingChange, type Standings } from "../../src/state/standing/standings.redis.js";
import { eventually } from "../support/eventually.js";
import { redisOfFile } from "../support/redis-of-file.js";

const redis = redisOfFile();

const changed = (user_id: string, standing: Standing, version: number | string, until = 0): StandingChange => ({
  ...{ user_id, standing, version, until },
});
const ofHost = (host: string, standing: Standing, version: number): StandingChange => ({
  ...{ host, standing, version, until: 0 },
});

async function copyOf(standings: Standings = createStandings(redis.scripts)): Promise<Standings> {
  await standings.refresh();
  return standings;
}

// Invariant 3.
test("the newest version counts, in whatever order and however often its events come", async () => {
  const one = createStandings(redis.scripts);
  const history = [
    changed("ada", "suspended", "9223372036854775807"),
    changed("ada", "active", "9223372036854775806"),
    changed("bob", "limited", 2),
    changed("bob", "suspended", 10),
    changed("cat", "suspended", 1),
    changed("cat", "active", 2),
  ];
  for (const change of [...history, ...history.toReversed(), ...history]) await one.record([change]);
  for (const copy of [await copyOf(one), await copyOf()])
    expect([copy.size, copy.suspended, ...["ada", "bob", "cat", "dan"].map(copy.of)]).toEqual([
      ...[2, 2],
      ...["suspended", "suspended", "active", "active"],
    ]);
});

test("a host stands for its actors and those of its subdomains, and the stricter standing counts", async () => {
  const standings = createStandings(redis.scripts);
  await standings.record([
    ofHost("spam.example", "limited", 1),
    ofHost("b.spam.example", "suspended", 1),
    changed("https://a.spam.example/u/1", "suspended", 1),
    changed("https://b.spam.example/u/2", "limited", 1),
    changed("spam.example", "suspended", 1),
  ]);
  const { of } = await copyOf(standings);
  const actor = (host: string, name = "3") => of(`https://${host}/u/${name}`);
  expect([actor("spam.example"), actor("a.spam.example"), actor("a.spam.example", "1")]).toEqual([
    ...["limited", "limited", "suspended"],
  ]);
  expect([actor("b.spam.example"), actor("c.b.spam.example:8443"), actor("b.spam.example", "2")]).toEqual(
    Array(3).fill("suspended"),
  );
  expect([actor("example"), actor("notspam.example"), of("spam.example"), of("ada")]).toEqual([
    ...["active", "active", "suspended", "active"],
  ]);
});

test("a standing ends at its time, without a change", async () => {
  const standings = createStandings(redis.scripts);
  const until = Date.now() + 300;
  await standings.record([changed("ada", "suspended", 1, until)]);
  const { of } = await copyOf(standings);
  expect(of("ada")).toBe("suspended");
  await eventually(() => of("ada") === "active", "the end");
  expect(Date.now()).toBeGreaterThanOrEqual(until);
});

test("a copy reads each change of ten thousand once, and what was read before is not read again", async () => {
  const standings = createStandings(redis.scripts);
  const wave = Array.from({ length: 10_000 }, (_, number) => changed(`spam-${number}`, "suspended", 1));
  await standings.record(wave);
  await copyOf(standings);
  expect([standings.size, standings.of("spam-9999")]).toEqual([10_000, "suspended"]);
  await standings.record([changed("spam-17", "active", 2)]);
  await redis.raw.config("RESETSTAT");
  await copyOf(standings);
  expect([standings.size, standings.of("spam-17")]).toEqual([9_999, "active"]);
  expect(await redis.raw.info("commandstats")).toMatch(/cmdstat_hget:calls=1,/);
});

test("what Redis loses stays in force, and is read from the users service again", async () => {
  const standings = createStandings(redis.scripts);
  let stored = [changed("ada", "suspended", 1), changed("bob", "limited", 1)];
  const read = async function* () {
    yield stored;
  };
  const first = standings.startFill(silent, read, async () => []);
  await eventually(async () => (await redis.raw.hget(STANDINGS_KEY, "~complete")) === "1", "a fill");
  await first.close();
  await copyOf(standings);
  await redis.raw.flushall();
  // An event comes before the next fill.
  await standings.record([changed("cat", "limited", 1)]);
  await copyOf(standings);
  expect(["ada", "bob", "cat"].map(standings.of)).toEqual(["suspended", "limited", "limited"]);
  expect(standings.isLost).toBe(true);
  expect([(await copyOf()).of("ada")]).toEqual(["active"]);
  stored = [changed("ada", "suspended", 1)];
  const loop = standings.startFill(silent, read, async () => []);
  await eventually(async () => (await copyOf(standings)).of("bob") === "active", "what the users service has");
  expect(["ada", "cat"].map(standings.of)).toEqual(["suspended", "limited"]);
  expect([standings.size, standings.suspended, standings.isLost]).toEqual([2, 1, false]);
  await loop.close();
});

// Invariant 5.
test("a fill puts all standings in force, and hides the drops of each user, while those of another cannot be read", async () => {
  const standings = createStandings(redis.scripts);
  const read = async function* () {
    yield [changed("ada", "suspended", 1), changed("bob", "limited", 1), changed("cat", "active", 1)];
    yield [changed("dan", "suspended", 1), ofHost("spam.example", "suspended", 1)];
  };
  const asked: (readonly string[])[] = [];
  let isAvailable = false;
  const veil = async (users: readonly string[]) => {
    asked.push(users);
    return isAvailable ? [] : ["ada"];
  };
  const loop = standings.startFill(silent, read, veil);
  await eventually(() => asked.length === 2, "another attempt");
  await copyOf(standings);
  expect([...["ada", "bob", "dan", "https://spam.example/u/1"].map(standings.of), asked]).toEqual([
    ...["suspended", "limited", "suspended", "suspended"],
    [["ada", "dan"], ["ada"]],
  ]);
  expect(await redis.raw.hget(STANDINGS_KEY, "~complete")).toBeNull();
  isAvailable = true;
  await eventually(async () => (await redis.raw.hget(STANDINGS_KEY, "~complete")) === "1", "a fill");
  await loop.close();
});

// Invariant 11.
test("a host with a hundred thousand suspended actors is one entry of the copy, and costs others no read", async () => {
  const standings = createStandings(redis.scripts);
  await standings.record([ofHost("spam.example", "suspended", 1)]);
  await copyOf(standings);
  await redis.raw.config("RESETSTAT");
  const actors = Array.from({ length: 100_000 }, (_, actor) => `https://a${actor % 100}.spam.example/u/${actor}`);
  expect(actors.filter((actor) => standings.of(actor) !== "suspended")).toEqual([]);
  expect([standings.size, standings.of("ada"), standings.of("https://example/u/1")]).toEqual([1, "active", "active"]);
  expect(await redis.raw.info("commandstats")).not.toMatch(/cmdstat_(hget|hmget|evalsha|zrangebyscore):/);
});
