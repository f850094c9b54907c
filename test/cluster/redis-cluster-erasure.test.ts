import { expect, test } from "@jest/globals";
import { audienceOf } from "../../src/state/entries/writer.redis.js";
import { erasedOn } from "../support/erased.js";
import { dropOf, fencesOn, forgetOn, snapshot, TRACES } from "../support/erasure.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { adaptersOn } from "../support/redis.js";
import { serversOf } from "../support/servers.js";
import { homeKey } from "../support/timeline-keys.js";

const nats = natsOfFile();
const bench = serversOf("a Redis Cluster");

/** Tombstones may stay. */
const contents = async (): Promise<object> => {
  const kept = Object.entries(await snapshot(bench.client)).filter(
    ([key]) => !/^timeline:(tombstones|x:deleted:)/.test(key),
  );
  const fields = (content: unknown) =>
    Array.isArray(content) ? content.filter((one) => !String(one).includes(":~deleted,")) : content;
  return Object.fromEntries(kept.map(([key, content]) => [key, fields(content)]));
};

test("on a Redis Cluster nothing names an erased user, and what others have is as before", async () => {
  const others = ["ada2", "örjan", "bob", "cat"];
  await fencesOn(bench.scripts).tombstonedAmong(["none"]);
  for (const [at, user] of others.entries())
    for (const { leave } of TRACES) await leave(bench.client, user, others[(at + 1) % others.length] as string);
  const before = await contents();
  for (const { leave } of TRACES) for (const other of others) await leave(bench.client, "ada", other);
  await fencesOn(bench.scripts).recordTombstones([{ drop: dropOf("ada"), author: "ada", time: Date.now() }]);
  expect(await contents()).not.toEqual(before);
  const forget = forgetOn({ ...bench, nats });
  const context = { stopping: new AbortController().signal, left: async () => undefined };
  for (let times = 0; times < 2; times++) {
    await forget("ada", context);
    expect(await contents()).toEqual(before);
  }
});

// Invariant 4.
test("on a Redis Cluster an erased follower gets no home, and others who have one are not asked for", async () => {
  const erased = erasedOn(bench.scripts, nats);
  const asked: (readonly string[])[] = [];
  const among = (users: readonly string[]) => {
    asked.push(users);
    return erased.among(users);
  };
  const { writer } = adaptersOn(bench.scripts, { maxEntries: 100, erased: { among } });
  const users = Array.from({ length: 20 }, (_, number) => `follower ${number}`);
  const audience = audienceOf([...users, "eve"]);
  const add = (...drops: readonly string[]) =>
    writer.addToHomes([
      { audience, entries: drops.map((drop, at) => ({ drop, score: at + 1, by: { author: "bob" } })) },
      { audience: audienceOf(users.slice(0, 5)), entries: [{ drop: "more", score: 9, by: { author: "cat" } }] },
    ]);
  await erased.record("eve", 1);
  expect(await add("d1", "d2")).toBe(true);
  expect(asked.flat().sort()).toEqual([...users, "eve"].sort());
  asked.length = 0;
  expect(await add("d1", "d3")).toBe(false);
  expect(asked).toEqual([["eve"]]);
  for (const [at, user] of users.entries()) {
    const drops = await bench.client.zrange(homeKey(user), 0, "-1");
    expect(drops.sort()).toEqual([...["d1", "d2", "d3"], ...(at < 5 ? ["more"] : [])]);
    expect(await bench.client.pttl(homeKey(user))).toBeGreaterThan(0);
  }
  expect(await bench.client.exists(homeKey("eve"))).toBe(0);
});
