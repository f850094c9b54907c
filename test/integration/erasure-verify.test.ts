import { afterAll, beforeAll, beforeEach, describe, expect, jest, test } from "@jest/globals";
import { Command } from "commander";
import { define } from "../../src/cli/erase.js";
import type { Place } from "../../src/contracts/people.js";
import { isLeft, placesAsText, verifyErasure } from "../../src/erasure/index.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { dropOf, fencesOn, forgetOn, snapshot, TRACES } from "../support/erasure.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { redisStateOn } from "../support/state.js";

const redis = redisOfFile();
const nats = natsOfFile();

beforeAll(() => applyTopology(nats.manager, { replicas: 1, notifyParts: 4 }, silent));
beforeEach(async () => {
  for await (const { config } of nats.manager.streams.list()) await nats.manager.streams.purge(config.name);
});

const verify = (user: string, db?: Db): Promise<Place[]> =>
  verifyErasure({ state: redisStateOn(redis.scripts), nats: nats.connection, db }, user);
const left = async (user: string, db?: Db) =>
  (await verify(user, db)).filter(({ mayStay }) => !mayStay).map(({ place, count }) => [place, count] as const);

const known = (user: string) =>
  fencesOn(redis.scripts).recordTombstones([{ drop: dropOf(user), author: user, time: Date.now() }]);

test.each(TRACES.map((trace, at) => [at, trace.kind, trace] as const))(
  "trace %i in Redis, %s",
  async (at, kind, trace) => {
    const user = at % 2 === 0 ? "ada" : "erin é";
    if (trace.ofDrop) await known(user);
    for (const other of ["other", `${user}2`]) await trace.leave(redis.raw, other, "bob");
    expect(await left(user)).toEqual([]);
    await trace.leave(redis.raw, user, "bob");
    const before = await snapshot(redis.raw);
    expect((await left(user)).map(([place]) => place)).toContain(kind);
    expect(await snapshot(redis.raw)).toEqual(before);
  },
);

test("after an erasure only what may stay is found, with the reason", async () => {
  for (const { leave } of TRACES) await leave(redis.raw, "ada", "bob");
  await known("ada");
  expect((await left("ada")).length).toBeGreaterThan(20);
  await forgetOn({ scripts: redis.scripts, nats })("ada", {
    stopping: new AbortController().signal,
    left: async () => undefined,
  });
  await redis.raw.zadd("timeline:x:erased", 0, "ada", 0, "~floor");
  const places = await verify("ada");
  expect(isLeft(places)).toBe(false);
  expect(places).toContainEqual(expect.objectContaining({ place: "timeline:x:erased", count: 1, mayStay: true }));
  expect(places).toContainEqual(
    expect.objectContaining({ place: "timeline:x:deleted:{<number>}:<user>", why: "a tombstone, until its age" }),
  );
  expect(placesAsText("ada", places)).toMatch(/^may stay {2}Redis {2}timeline:x:erased/m);
  expect(placesAsText("ada", places)).toMatch(/"ada" is named only where it may be$/);
});

test("keys of a wrong type are looked at and left, and keys of unknown kinds are named", async () => {
  await redis.raw.set("timeline:home:bob", "text");
  await redis.raw.set("timeline:x:bylines:{timeline:local}", "text");
  await redis.raw.set("timeline:x:edges:{1}", "text");
  await redis.raw.set("timeline:x:hiders:cat", "text");
  await redis.raw.sadd("timeline:x:hiders:bob", "ada");
  await redis.raw.set("timeline:x:new:{ada}", "text");
  await redis.raw.set("another program:ada", "text");
  const before = await snapshot(redis.raw);
  expect(new Map(await left("ada"))).toEqual(
    new Map([
      ["timeline:x:hiders:<user>", 1],
      ["timeline:x:new:{ada}", 1],
    ]),
  );
  expect(await snapshot(redis.raw)).toEqual(before);
});

const MESSAGES: readonly (readonly [
  stream: string,
  subject: (token: string) => string,
  body: (user: string) => object,
])[] = [
  ["FANOUT", () => "fanout.job.add.5", (user) => ({ user_ids: ["x", user] })],
  ["FANOUT", () => "fanout.edges.5", (user) => ({ edges: [{ follower_id: user }] })],
  ["FANOUT", () => "fanout.notifications.5", (user) => ({ changes: [{ user: "x", parent_author: user }] })],
  ["EDGES", (token) => `edges.calm.${token}`, () => ({})],
  ["ENGAGEMENT", () => "engagement.changed", (user) => ({ actor_id: user, kind: "like" })],
  ["ACTIVITY", () => "activity.reacted", (user) => ({ author_id: user })],
  ["SHARED", () => "shared.changed", (user) => ({ event: "new_drop", by: `bob,,${encodeId(user)}` })],
  ["SHARED", () => "shared.changed", (user) => ({ event: "~hiding", user_id: user })],
  ["KV_POSITIONS", (token) => `$KV.POSITIONS.${token}`, () => ({ home: { drop_id: "d" } })],
  ["CHECKS", () => "checks.publication", (user) => ({ user_id: user })],
  ["NOTIFY", (token) => `notify.user.${token}`, () => ({ event: "reset" })],
  ["NOTIFY", () => "notify.user.bob", (user) => ({ event: "new_drop", by: `bob,${encodeId(user)}` })],
  ["NOTIFY-3", (token) => `notify.3.user.${token}`, () => ({ event: "reset" })],
  ["NOTIFY-0", () => "notify.0.user.bob", (user) => ({ event: "new_drop", by: `bob,${encodeId(user)}` })],
  ["DLQ", () => "dlq.invalid.unknown", (user) => ({ recipients: [user] })],
  ["TIMELINE", () => "events.timeline.requested", (user) => ({ user_id: "x", did: user })],
  ["TIMELINE_EVENTS", () => "events.timeline.completed", (user) => ({ user_id: user })],
  ["GAMIFICATION", () => "events.xp.earned", (user) => ({ user_id: user })],
  ["KV_ANALYSES", (token) => `$KV.ANALYSES.r.${token}.ids`, () => ({})],
  ["DROPS", () => "drops.created", (user) => ({ user_id: user })],
  ["COMPLETIONS", () => "completed.fanout", (user) => ({ user_id: user })],
  ["KV_ERASED", (token) => `$KV.ERASED.user.${token}`, () => ({})],
];

test.each(MESSAGES.map((message, at) => [at, ...message] as const))(
  "message %i, in %s",
  async (at, stream, subject, body) => {
    for (const [user, wanted] of [
      ["erin", 0],
      ["erin é", 1],
    ] as const) {
      const id = `${at} ${user}`;
      await nats.publish({ subject: subject(encodeId(user)), id, body: JSON.stringify(body(user)) });
      const mayStay = ["DROPS", "COMPLETIONS", "ACTIVITY", "KV_ERASED"].includes(stream);
      const found = (await verify("erin é")).map(({ place, count, mayStay: may }) => [place, count, may]);
      expect(found).toEqual(wanted === 1 ? [[stream, 1, mayStay]] : []);
    }
  },
);

/** Bodies that no field tells the user of. */
const BROKEN: readonly (readonly [reason: string, body: (user: string) => string])[] = [
  ["invalid", (user) => `{"user_id":"${user}","drop_id":`],
  ["invalid", (user) => JSON.stringify({ userid: user, drop_id: "d" })],
  ["invalid", (user) => JSON.stringify([user])],
  ["invalid", (user) => `user_id=${user}, drop_id=d`],
  ["toolarge", (user) => `{"recipients":["x",${JSON.stringify(user)},"y`],
  ["toolarge", (user) => `{"user_id":"${user.replace("é", "\\u00e9").replaceAll("/", "\\/")}","text":"`],
  ["exhausted", (user) => `{"user_id":"${user}"`],
];

test.each(["ada", "7", "erin é", "https://far.example/users/ada"])(
  "dead letters that do not parse, or were cut, and have the id %s go, and are seen before; others stay",
  async (user) => {
    const letter = (reason: string, body: string) =>
      nats.publish({
        subject: `dlq.${reason}.drop_created`,
        id: `${Math.random()}`,
        body,
        headers: { "Dlq-Reason": reason },
      });
    for (const [reason, body] of BROKEN) for (const named of [user, `${user}2`]) await letter(reason, body(named));
    const others = [
      JSON.stringify({ drop_id: user, user_id: "bob", version: 7, seq: 7 }),
      JSON.stringify({ user_id: "bob", [user]: "x" }),
      `{${JSON.stringify(user)} : 1, "user_id":`,
    ];
    for (const other of others) await letter("invalid", other);
    const counts = (await left(user)).map(([, count]) => count);
    expect(counts.reduce((sum, count) => sum + count)).toBe(BROKEN.length);
    await forgetOn({ scripts: redis.scripts, nats })(user, {
      stopping: new AbortController().signal,
      left: async () => undefined,
    });
    expect(await left(user)).toEqual([]);
    expect((await nats.manager.streams.info("DLQ")).state.messages).toBe(BROKEN.length + others.length);
  },
);

test("a dead letter that the erasure understands, and that has the id where it does not look, is left", async () => {
  const headers = { "Dlq-Reason": "exhausted" };
  await nats.publish({ subject: "dlq.exhausted.fanout_job", id: "1", body: '{"members":["ada"]}', headers });
  expect(await left("ada")).toEqual([["DLQ", 1]]);
});

describe.each(DATABASES)("$name", ({ start }) => {
  let server: DatabaseServer;
  let db: Db;
  beforeAll(async () => {
    server = await start();
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    db = await server.emptyDatabase();
    await migrate(db, MIGRATIONS, silent);
  });

  test("rows that name a user are found in every column of every table, and texts of people are no places", async () => {
    for (const user of ["erin", "erin é"]) {
      await db.query("CREATE TABLE IF NOT EXISTS posts.fresh (owner_id text, people text[], body text, doc jsonb)");
      await db.query(
        "INSERT INTO posts.fresh VALUES ($1, ARRAY['x', $1], $1, json_build_object('user_id', $1::text)::jsonb)",
        [user],
      );
      const outbox =
        "INSERT INTO public.outbox (source, owner, key, subject, message_id, body) VALUES ('posts', $1, $1, $2, $1, $3)";
      await db.query(outbox, [user, "drops.deleted", JSON.stringify({ user_id: user })]);
      await db.query(outbox, ["x", "drops.created", JSON.stringify({ user_id: "x", body: user, recipients: [user] })]);
      await db.query(outbox, [user, "graph.erased", JSON.stringify({ user_id: user })]);
    }
    await db.query("CREATE TABLE users.erasures_more (user_id text)");
    await db.query("INSERT INTO users.erasures_more VALUES ('erin é')");
    await db.query("CREATE TABLE posts.gone (user_id text, deleted_at bigint)");
    await db.query("INSERT INTO posts.gone VALUES ('erin é', 1), ('erin é', NULL), ('erin', 1)");
    const places = (await verify("erin é", db)).map(({ place, count, mayStay }) => `${place} ${count} ${mayStay}`);
    expect(places.sort()).toEqual([
      "posts.fresh.doc 1 false",
      "posts.fresh.owner_id 1 false",
      "posts.fresh.people 1 false",
      "posts.gone.user_id 1 false",
      "posts.gone.user_id 1 true",
      "public.outbox.body 1 true",
      "public.outbox.body 2 false",
      "public.outbox.owner 1 false",
      "public.outbox.owner 1 true",
      "users.erasures_more.user_id 1 true",
    ]);
  });

  test("a large table is read in steps, and partitions are named as their table", async () => {
    await db.query("CREATE TABLE public.wide (user_id text, body text) WITH (fillfactor = 10)");
    await db.query("INSERT INTO public.wide SELECT 'user ' || n, repeat('x', 700) FROM generate_series(1, 4200) n");
    await db.query("UPDATE public.wide SET user_id = 'ada' WHERE user_id IN ('user 1', 'user 2000', 'user 4200')");
    await db.query(
      "INSERT INTO users.followers (following_id, follower_id, version, active, changed_at, delta) VALUES ('ada', 'bob', 1, true, 1, 1), ('bob', 'ada', 1, true, 1, 1)",
    );
    const asked: string[] = [];
    const places = await verifyErasure(
      { state: redisStateOn(redis.scripts), nats: nats.connection, db },
      "ada",
      (text) => asked.push(text),
    );
    expect(places.map(({ place, count }) => `${place} ${count}`).sort()).toEqual([
      "public.wide.user_id 3",
      "users.followers.follower_id 1",
      "users.followers.following_id 1",
    ]);
    expect(asked.filter((text) => text === "PostgreSQL: public.wide").length).toBeGreaterThan(1);
  });
});

test("the command prints each place, and its exit code says whether a user is left", async () => {
  const env = { ...process.env };
  Object.assign(process.env, { REDIS_URL: redis.broker.url, NATS_URL: nats.broker.url, DATABASE_URL: "" });
  const printed: string[] = [];
  const log = jest.spyOn(console, "log").mockImplementation((text: string) => void printed.push(text));
  const run = async (...args: string[]) => {
    const erase = new Command("erase").exitOverride();
    define(erase);
    await erase.parseAsync(["verify", ...args], { from: "user" });
    const { exitCode } = process;
    process.exitCode = undefined;
    return [exitCode, printed.splice(0).join("\n")];
  };
  try {
    expect(await run("ada")).toEqual([
      0,
      '"ada" is named only where it may be\nDATABASE_URL is not set: no table was read',
    ]);
    await redis.raw.sadd("timeline:x:hiders:bob", "ada");
    const [exitCode, text] = await run("ada", "--json");
    expect(exitCode).toBe(1);
    expect(JSON.parse(String(text))).toMatchObject({
      ...{ user_id: "ada", left: true, tables: false },
      places: [{ server: "Redis", place: "timeline:x:hiders:<user>", example: "timeline:x:hiders:bob", count: 1 }],
    });
    expect(await run("ada")).toEqual([1, expect.stringMatching(/^LEFT {6}Redis {2}timeline:x:hiders:<user> /)]);
  } finally {
    log.mockRestore();
    process.env = env;
  }
});
