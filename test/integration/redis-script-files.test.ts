import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { LUA_FILES, lua } from "../support/lua.js";
import { openRedis, type RedisBench } from "../support/redis.js";

let bench: RedisBench;
beforeAll(async () => {
  bench = await openRedis();
});
afterAll(() => bench.close());

const LATER = Date.now() + 3_600_000;

const streamOf = (script: string): string[] => [
  ...[1, 2, 3].map((key) => `k:${script}:${key}`),
  ...["alice", "c1", "m5"],
];

const ARGS: Readonly<Record<string, readonly (string | number)[]>> = {
  "add-entries": [LATER, 10, 9, 0, "0", "homes", "k:add-entries:", "1,2,3", 1, 1, "a", "eve"],
  "remove-entries": [LATER, "k:remove-entries:", "1,2,3", 1, "a"],
  "trim-older": [LATER, 1, "k:trim-older:", "1,2,3"],
  "read-page": [
    ...["", 1, 0, 0],
    ...["k:read-page:1", "older", 1, 0, "", "", "", 1, 0, "0"],
    ...["k:read-page:2", "newer", 1, 0, "", "", "", 0, 0, "0"],
    ...["k:read-page:3", "older", 1, 0, 1, "a", "pulls", 0, 0, "0"],
  ],
  "fill-hidden": ["begin", "mark", 1_000, 1_000],
  "read-hidden": [10],
  "add-hider": ["ada", 1_000, "eve"],
  "change-hidden": ["begin", "mark", 1_000, 1_000, 1_500, "eve"],
  "hidden-among": ["eve", "", "dan", 1, "k:hidden-among:", "1,2,3"],
  "fill-pulls": ["begin", "mark", 1_000],
  "begin-rebuild": [-1, 0, 0, 0],
  "stage-rebuild": [LATER, -1, 1_000, 0],
  "keep-remote": [LATER, -1, 0],
  "finish-rebuild": [LATER, -1, 0, 10, 0, 0, 0],
  "interrupt-rebuild": [1, "k:interrupt-rebuild:", "1,2,3", "1eve", "", "0eve,1dan"],
  "note-publishing": [1_000, 0, 5, "a"],
  "note-removed": [1_000, "remove", "a"],
  "record-tombstones": [1, "channel", 1, "a"],
  "record-logout": ["ada", 1_000, LATER],
  "record-deleted": ["k:", "l:", 1_000, "{1}", "author", "a", 1],
  "read-deleted": ["k:", "l:", 1_000, 10, "{1}", "author"],
  "mark-tombstones": [LATER, "begin", -1, 0],
  "release-lease": ["owner"],
  "mark-edges": [LATER, "begin", -1, "", ""],
  "change-edges": ["k:", "l:", 1_000, "record", "{1}", "author", "follower", 1, "1"],
  "read-recent-unfollowers": ["author:", 1_000, 0, 10],
  "note-attempt": [
    1_000,
    "k:note-attempt:1",
    "n",
    "begun",
    "k:note-attempt:2",
    "n",
    "begun",
    "k:note-attempt:3",
    "n",
    "failed",
  ],
  "mark-chunk": [1_000, "0"],
  "read-lately": [1_000, "k:read-lately:", "1,2,3"],
  "record-standings": ["name", "", "ada", 1, "limited", 0],
  "read-standings": ["name", 0, 10],
  "change-pulled": ["ada", "", "promoting:hand", 10],
  "change-pulls": [LATER, "add", "k:change-pulls:", "1,2,3", 1, "ada"],
  "find-listening": [1_000, "k:find-listening:1", 2, "a", "b", "k:find-listening:2", 1, "c"],
  "count-listeners": ["k:count-listeners:1", "k:count-listeners:2", "k:count-listeners:3"],
  "find-pulling": ["k:find-pulling:", "1,2,3", "ada"],
  "note-drop": ["d", 1_000, 1_000, 10],
  "record-server": [LATER, "1", "0", "{}"],
  "hold-lease": ["owner", 1_000],
  "register-streams": [2_000, 3_600_000, 660, 600, 1_000, ...streamOf("register-streams")],
  "renew-streams": [2_000, 3_600_000, 660, 600, 1_000, ...streamOf("renew-streams")],
  "sweep-streams": [1_000, 1_000, 10, 10, "k:sweep-streams:1", "k:sweep-streams:2"],
  reserve: ["a", "", 1, 1_000, 1, 2, 1_000, 1, 1, 1_000, 1],
  settle: ["a", 1, 1, 1, 1, 1, 1],
  "take-token": [5_000, 50, 1, 0],
  "users-read-list": ["(", 10, "g", 1_000],
  "users-fill-list": ["g", 1_000, "", "a"],
  "users-forget": ["g", 1_000],
  "forget-unfollowers": ["author:", "a"],
  "forget-beside-home": ["a"],
  "remove-own": [1],
  "remove-wrong-types": ["zcard", "k:remove-wrong-types:1"],
};

const NAMES = LUA_FILES.map((file) => basename(file, ".lua"));

const argsOf = (name: string): readonly (string | number)[] => ARGS[name] ?? [];

const keysOf = (name: string): string[] => [1, 2, 3].map((key) => `k:${name}:${key}`);

test("every script has a name of its own, is tested here, and is called in the folder of its file", () => {
  expect([...NAMES].sort()).toEqual(Object.keys(ARGS).sort());
  for (const file of LUA_FILES) {
    const folder = dirname(file);
    const code = readdirSync(folder)
      .filter((name) => name.endsWith(".ts"))
      .map((name) => readFileSync(join(folder, name), "utf8"));
    const defined = `= script("${basename(file, ".lua")}", import.meta.url`;
    expect([file, code.filter((text) => text.includes(defined)).length]).toEqual([file, 1]);
  }
});

test("every script runs again after the server has forgotten it", async () => {
  const fresh = createScripts(bench.client);
  for (const name of NAMES) {
    await fresh.run(lua(name), keysOf(name), argsOf(name));
    await bench.raw.script("FLUSH");
    await fresh.run(lua(name), keysOf(name), argsOf(name));
  }
});

/** Keys that scripts make up themselves, from the arguments above. */
const MADE_UP = ["k:{1}", "l:{1}:author", "registry", "timeline:home:ada"];

// Invariant 8.
test.each(NAMES.filter((name) => name !== "remove-wrong-types"))(
  "%s takes a key of a wrong type for a missing one, and removes it",
  async (name) => {
    const logged: string[][] = [];
    const scripts = createScripts(bench.client, {
      ...silent,
      warn: (fields) => void logged.push(Object.values(fields)[0]),
    });
    const keys = [...keysOf(name), ...MADE_UP];
    await bench.raw.flushall();
    const missing = await scripts.run(lua(name), keysOf(name), argsOf(name));
    const written = await bench.raw.keys("*");
    await bench.raw.flushall();
    // No script uses a stream.
    for (const key of keys) await bench.raw.xadd(key, "*", "a", "b");
    expect(await scripts.run(lua(name), keysOf(name), argsOf(name))).toEqual(missing);
    for (const key of written) expect(await bench.raw.type(key)).not.toBe("stream");
    for (const key of logged.flat()) expect(keys).toContain(key);
  },
);

// Invariant 8.
test("commands and pipelines remove keys of a wrong type, too", async () => {
  const { scripts, raw } = bench;
  await raw.flushall();
  await raw.set("z", "text");
  await raw.set("h", "text");
  expect(await scripts.command("zscore", (client) => client.zscore("z", "a"))).toBeNull();
  expect(await scripts.command("hgetall", (client) => client.hgetall("h"))).toEqual({});
  expect(await raw.exists("z", "h")).toBe(0);
});
