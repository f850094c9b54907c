import { expect, test } from "@jest/globals";
import { type AuditDeps, audit } from "../../../../src/consistency/audit/audit.js";
import { isLeftWrong, reportsAsJson, reportsAsText } from "../../../../src/consistency/audit/report.js";
import type { TimelineEntry } from "../../../../src/contracts/timelines.js";
import { shareClock } from "../../../../src/kernel/time.js";
import type { WaitingEvent } from "../../../../src/state/messages/waiting.redis.js";

const OLD = 1_000;

const unapplied = (start: number, ...waiting: readonly WaitingEvent[]) => ({ start, waiting });

/** Homes in memory, by user; `said` is what the upstreams answer. */
function scene(stored: Record<string, readonly string[]>, said: Record<string, readonly string[]>, retentionStart = 0) {
  const entriesOf = (drops: readonly string[] = []): TimelineEntry[] => drops.map((drop) => ({ drop, score: OLD }));
  const homes = new Map(Object.entries(stored));
  const rebuilt: string[] = [];
  const dead = new Set<string>();
  const deps: AuditDeps = {
    readStored: async (user) => {
      const drops = homes.get(user);
      return drops && { floor: 0, entries: entriesOf(drops) };
    },
    readExpected: async (user) => {
      if (user === "broken") throw new Error("GetFollowingList: INTERNAL");
      return { floor: 0, entries: entriesOf(said[user]) };
    },
    retentionStart: () => retentionStart,
    tombstonedAmong: async (drops) => new Set(drops.filter((drop) => dead.has(drop))),
    readUnapplied: async () => unapplied(Date.now()),
    isKnown: async () => true,
    rebuild: async (user) => {
      rebuilt.push(user);
      homes.set(user, said[user] ?? []);
    },
    maxEntries: 10,
    settleMs: 10,
  };
  return { deps, homes, rebuilt, dead };
}

test("homes that differ, agree, are incomplete or cannot be read are told apart", async () => {
  const { deps, rebuilt } = scene({ ada: ["a"], bob: ["x"], broken: [] }, { ada: ["a"], bob: ["a", "b"] });
  const report = await audit(deps, ["ada", "bob", "cold", "broken"]);
  expect(reportsAsJson({ home: report })).toMatchObject({
    ...{ users: 2, differ: 1, rate: 0.5, incomplete: 1, undecided: [], repaired: 0 },
    failed: [{ user: "broken", error: "GetFollowingList: INTERNAL" }],
    differences: [{ user: "bob", missing: ["a", "b"], unexpected: ["x"], wrong_score: [] }],
  });
  expect(rebuilt).toEqual([]);
});

test("a difference that is gone at the second comparison was an event in progress", async () => {
  const { deps, homes } = scene({ ada: [] }, { ada: ["a"] });
  const applied: AuditDeps = {
    ...deps,
    readUnapplied: async () => {
      homes.set("ada", ["a"]);
      return unapplied(Date.now());
    },
  };
  let looks = 0;
  const late = {
    ...applied,
    readStored: async (user: string) => (looks++ === 0 ? { floor: 0, entries: [] } : deps.readStored(user)),
  };
  expect(await audit(late, ["ada"])).toMatchObject({ judged: 1, differing: [] });
  expect(looks).toBe(2);
});

test("the second look comes only when every event admitted before the first is applied", async () => {
  const { deps } = scene({ ada: [] }, { ada: ["a"] });
  const began = Date.now();
  let waited = 0;
  const busy = { ...deps, readUnapplied: async () => unapplied(++waited < 4 ? began - 5_000 : Date.now()) };
  const report = await audit(busy, ["ada"]);
  expect([report.differing.length, waited]).toEqual([1, 4]);
  expect(report.lagMs).toBeGreaterThanOrEqual(5_000);
});

test("an audit that stops while it waits for events leaves its differences undecided", async () => {
  const { deps } = scene({ ada: [] }, { ada: ["a"] });
  const stopping = new AbortController();
  const stuck = {
    ...deps,
    readUnapplied: async () => {
      stopping.abort();
      return unapplied(0);
    },
  };
  expect(await audit(stuck, ["ada"], { stopping: stopping.signal })).toMatchObject({ judged: 0, differing: [] });
  const later = new AbortController();
  const looking = {
    ...deps,
    readUnapplied: async () => unapplied(0),
    tombstonedAmong: async () => {
      later.abort();
      return new Set<string>();
    },
  };
  expect((await audit(looking, ["ada"], { stopping: later.signal })).undecided).toEqual(["ada"]);
});

test("a deleted drop that is still in a home is no difference", async () => {
  const { deps, dead } = scene({ ada: ["a", "gone"] }, { ada: ["a"] });
  dead.add("gone");
  expect((await audit(deps, ["ada"])).differing).toEqual([]);
});

test("a fix rebuilds timelines that differ, compares again, and reports those that differ still", async () => {
  const { deps, homes, rebuilt } = scene({ ada: ["a"], bob: [], eve: [] }, { ada: ["a"], bob: ["b"], eve: ["e"] });
  const stubborn = {
    ...deps,
    rebuild: async (user: string) => {
      await deps.rebuild(user);
      if (user === "eve") homes.set("eve", []);
    },
  };
  const report = await audit(stubborn, ["ada", "bob", "eve"], { fix: true });
  expect(rebuilt.toSorted()).toEqual(["bob", "eve"]);
  expect(report.differing.map(({ name }) => name)).toEqual(["bob", "eve"]);
  expect(report.remaining.map(({ name }) => name)).toEqual(["eve"]);
  // It is known how long the repair of bob took; that of eve failed.
  expect(report.repairMs).toEqual([expect.any(Number)]);
  expect(reportsAsText({ home: report })).toMatch(
    /^"bob"\n {2}1 missing: "b"\n(?:.*\n)*"eve" differs still\n2 of 3 users differ \(66\.67 %\)/,
  );
});

test("no id in a report controls the terminal", async () => {
  const [user, drop] = ["eve\u009b2J", "\u202eb\u007f"];
  const text = reportsAsText({ home: await audit(scene({ [user]: [] }, { [user]: [drop] }).deps, [user]) });
  expect(text).toContain(String.raw`"eve\u{9b}2J"`);
  expect(text.replaceAll("\n", "")).not.toMatch(/[\p{Cc}\p{Cf}]/u);
});

test("drops older than the retention are neither missing nor unexpected", async () => {
  const homes = [{ ada: ["gone"], bob: [] }, { bob: ["going"] }] as const;
  const report = await audit(scene(...homes, OLD + 1).deps, ["ada", "bob"]);
  expect([report.judged, report.differing]).toEqual([2, []]);
  const kept = await audit(scene(...homes, OLD).deps, ["ada", "bob"]);
  expect(kept.differing.map(({ name }) => name)).toEqual(["ada", "bob"]);
});

test("a timeline that was rebuilt and could not be compared again is undecided", async () => {
  const { deps } = scene({ eve: [] }, { eve: ["e"] });
  const stopping = new AbortController();
  let isRebuilt = false;
  const stuck = {
    ...deps,
    rebuild: async () => {
      isRebuilt = true;
    },
    // Events wait from then on.
    readUnapplied: async () => unapplied(isRebuilt ? 0 : Date.now()),
    tombstonedAmong: async () => {
      if (isRebuilt) stopping.abort();
      return new Set<string>();
    },
  };
  const report = await audit(stuck, ["eve"], { fix: true, stopping: stopping.signal });
  expect(report).toMatchObject({ repaired: ["eve"], remaining: [], undecided: ["eve"] });
  expect(isLeftWrong(report, { fix: true })).toBe(true);
  expect(isLeftWrong({ ...report, undecided: [] }, { fix: true })).toBe(false);
});

test("while events wait for a single user an audit waits longer for the others", async () => {
  const waits = { consumer: "planner", seq: 1, at: 0, drop: "waits" };
  for (const waiting of [[waits], []]) {
    const { deps } = scene({ ada: [] }, { ada: ["a"] });
    let [ahead, looks] = [0, 0];
    shareClock(() => Date.now() + ahead);
    const readUnapplied = async () => {
      ahead += 50_000;
      return unapplied(++looks > 3 ? Number.POSITIVE_INFINITY : 0, ...waiting);
    };
    const report = await audit({ ...deps, readUnapplied }, ["ada"]);
    expect([report.differing.length, report.undecided]).toEqual(waiting.length > 0 ? [1, []] : [0, ["ada"]]);
  }
  shareClock(Date.now);
});

test("what waits for a single user leaves only the drop, or the home of the follower, undecided", async () => {
  const stored = { ada: [], bob: [], eve: [], zoe: [] };
  const { deps, rebuilt } = scene(stored, { ada: ["waits"], bob: ["waits", "b"], eve: ["e"], zoe: ["z"] });
  const waiting = [
    { consumer: "planner", seq: 1, at: 0, drop: "waits", affected: { kind: "author", user: "zoe" } },
    { consumer: "graph", seq: 2, at: 0, affected: { kind: "reader", user: "eve" } },
  ] as const;
  const readUnapplied = async () => unapplied(Date.now(), ...waiting);
  const report = await audit({ ...deps, readUnapplied }, ["ada", "bob", "eve", "zoe"], { fix: true });
  expect(report.undecided).toEqual(["ada", "eve"]);
  expect(report.differing.map(({ name, differences }) => [name, differences.map(({ drop }) => drop)])).toEqual([
    ["bob", ["b"]],
    ["zoe", ["z"]],
  ]);
  expect(rebuilt.toSorted()).toEqual(["bob", "zoe"]);
});
