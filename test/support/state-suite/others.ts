import { describe, expect, test } from "@jest/globals";
import type { AnalysisType, UserTier } from "../../../src/contracts/analysis.js";
import { personOf } from "../../../src/contracts/people.js";
import type { EdgeState } from "../../../src/state/index.js";
import { deliveryOf } from "../deliveries.js";
import { created } from "../timeline-events.js";
import { AT, entire, entry, moment, type Scene, toHomes } from "./scene.js";

const MINUTE = 60_000;
const DAY = 1_440 * MINUTE;
const USERS = ["ada", "{odd} user}", "ünï", "a:b"];
const stopping = new AbortController().signal;

/** Describes what operations on all but timelines answer and leave. */
export function describeOthers({ open, left }: Scene): void {
  const follow = (follower: string, version: number, follows = true, following = "bob") => [
    { follower, following, version, follows },
  ];

  const namesLeft = async () => (await left()).map((line) => line.slice(0, line.indexOf("): ") + 1));

  describe("fences, messages, limits and listeners", () => {
    // Invariants 4, 11.
    test("a deletion has a tombstone for 7.5 days, also under its author or actor, and leaves homes", async () => {
      const { fences, writer } = open();
      await writer.rememberActor("far", "ann");
      await writer.addToHomes(toHomes(["ada", "eve"], "d1", "d2"));
      const drop = (name: string, daysAgo: number) => ({ drop: name, author: "bob", time: Date.now() - daysAgo * DAY });
      const authors = await fences.recordTombstones([
        drop("d1", 0),
        drop("week", 7),
        drop("old", 7.6),
        { ...drop("far", 0), author: undefined },
      ]);
      expect([authors.get("d1"), authors.get("far")]).toEqual(["bob", "ann"]);
      expect(await fences.tombstonedAmong(["d1", "d2", "far", "old", "week"])).toEqual(new Set(["d1", "far", "week"]));
      await fences.removeDeleted(new Map([["bob", ["ada"]]]));
      expect(await left()).toEqual([
        "timeline:home:ada (30 d): d2=AT+001",
        "timeline:home:eve (30 d): d1=AT+000 d2=AT+001",
        "timeline:tombstones (for ever): d1=now far=now week=7 d ago ~floor=7.5 d ago",
        "timeline:x:actor:far (30 d): ann",
        "timeline:x:deleted:{n}:ann (7.5 d): far=now",
        "timeline:x:deleted:{n}:bob (7.5 d): d1=now week=7 d ago",
        "timeline:x:edges:{n} (for ever): ann:~deleted=0:0:now bob:~deleted=0:0:now ~floor=1",
        "timeline:x:taken:{timeline:home:ada} (10 min): d1=now",
      ]);
    });

    // Invariants 4, 11.
    test("the newest version of a follow is in force, of one version the unfollow; a look changes nothing", async () => {
      const { fences } = open();
      const states: string[] = [];
      const note = (all: readonly EdgeState[]) =>
        states.push(...all.map(({ version, follows }) => `${version} ${follows}`));
      for (const [version, follows] of [
        [3, true],
        [2, false],
        [3, false],
        [3, true],
        [10, true],
      ] as const)
        note(await fences.changeEdges(follow("ada", version, follows)));
      for (const version of [9, 11]) note(await fences.newestEdges(follow("ada", version, false)));
      expect(states).toEqual(["3 true", "3 true", "3 false", "3 false", "10 true", "10 true", "11 false"]);
      await fences.changeEdges([...follow("eve", 3, false), ...follow("bob", 9, false, "eve")]);
      await fences.replaceEdges(follow("ada", 1));
      expect(await fences.unfollowedAmong("bob", ["ada", "eve", "unknown"])).toEqual(["eve"]);
      expect((await entire(fences.recentUnfollowers("bob", 0))).flat()).toEqual(["ada", "eve"]);
      const all = (await entire(fences.allEdges())).map(({ follower, version }) => `${follower} ${version}`);
      expect(all.sort()).toEqual(["ada 1", "bob 9", "eve 3"]);
      const names = await fences.generations(["bob", "cat"]);
      await fences.renewGenerations(["bob"]);
      const renewed = await open().fences.generations(["bob", "cat"]);
      expect(["bob", "cat"].map((author) => renewed.get(author) === names.get(author))).toEqual([false, true]);
      const edges = "bob:=0:0:now bob:ada=1:1:now bob:eve=3:0:now eve:=0:0:now eve:bob=9:0:now ~floor=1";
      expect(await left()).toEqual([
        "timeline:tombstones (for ever): ~floor=7.5 d ago",
        `timeline:x:edges:{n} (for ever): ${edges}`,
        "timeline:x:generation:bob (7.5 d): random",
        "timeline:x:generation:cat (7.5 d): random",
        "timeline:x:unfollowers:{n}:bob (7.5 d): ada=now eve=now",
        "timeline:x:unfollowers:{n}:eve (7.5 d): bob=now",
      ]);
    });

    // Invariant 4.
    test("an erasure leaves the marker and tombstones; a lifted one leaves nothing", async () => {
      const { erased, lift, erasure, fences, writer, authors, listen } = open();
      await listen("bob");
      await writer.addToHomes(toHomes(["ada", "bob"], "d1"));
      await writer.addShared([{ timelines: ["local"], entry: entry("d1") }]);
      await authors.add("bob", entry("d1"));
      await fences.changeEdges([...follow("ada", 2, false), ...follow("bob", 2, true, "cat")]);
      await fences.recordTombstones([{ drop: "d1", author: "bob", time: Date.now() }]);
      for (const user of ["bob", "ann"]) await erased.record(user, 1);
      await lift.lift("ann", "by mistake");
      expect(await open().erased.among(["ada", "bob", "ann"])).toEqual(new Set(["bob"]));
      const bob = personOf("bob");
      const places = async () => {
        const all: string[] = [];
        const add = ({ place, mayStay }: { readonly place: string; readonly mayStay: boolean }) =>
          void (mayStay || all.push(place));
        await erasure.verify(bob, { add, checked: () => undefined });
        return all;
      };
      expect((await places()).length).toBeGreaterThan(6);
      expect(await erasure.readStored("bob")).toEqual(["d1"]);
      await erasure.forgetUnfollowersOf("bob");
      const people = { all: [bob], users: new Set(["bob"]), tokens: new Set([bob.token]), met: () => undefined };
      const walk = { stopping, left: async () => undefined, lost: async () => undefined };
      await erasure.removeAll({ ...people, ...(await erasure.readOwn(["bob"])) }, walk);
      expect(await places()).toEqual([]);
      expect(await left()).toEqual([
        "timeline:tombstones (for ever): d1=now ~floor=7.5 d ago",
        "timeline:x:deleted:{n}:bob (7.5 d): d1=now",
        "timeline:x:edges:{n} (for ever): bob:~deleted=0:0:now ~floor=1",
        "timeline:x:erased (for ever): bob=0 ~floor=0",
      ]);
    });

    // Invariants 3, 11.
    test("attempts, waiting events, the progress of a fan-out and drops being published are kept for a while", async () => {
      const { attempts, waiting, progress, publishing, readProgress } = open();
      const json = created({ drop_id: "d1", user_id: "bob", visibility: "public", created_at: AT }).payload;
      const [message, second] = [deliveryOf({ json }), deliveryOf({ json, seq: 2 })];
      const counts: number[][] = [];
      const begin = async (of: typeof message, name: string) => {
        const { count, lost, beside } = await attempts.begin(of, name, false);
        counts.push([count, lost, beside]);
      };
      for (const name of ["a", "a", "b"]) await begin(message, name);
      await attempts.fail(message, "a");
      for (const name of ["b", "c"]) await begin(message, name);
      for (const one of [message, second]) await attempts.refund(one, "c");
      expect(counts).toEqual([
        [1, 0, 0],
        [1, 0, 0],
        [1, 1, 1],
        [2, 0, 0],
        [2, 1, 1],
      ]);
      for (const one of [message, second]) await waiting.note(one, 1_000);
      await waiting.remove(second);
      const noted = { seq: 1, drop: "d1", affected: { kind: "author", user: "bob" } };
      expect(await waiting.read()).toMatchObject([noted]);
      const fanout = { event: "drop_created", drop_id: "d1" } as const;
      expect(await progress.done(fanout, "c1")).toBeUndefined();
      expect(await progress.planned(fanout, ["c1", "c2"], [70])).toBeUndefined();
      const open1 = { ...fanout, recipients: 70, chunks: 2, done: 1, open: "c2" };
      expect(await readProgress("drop_created", "d1")).toEqual(open1);
      expect(await progress.done(fanout, "c2")).toEqual({ chunks: 2, recipients: 70 });
      expect(await progress.planned(fanout, ["c1", "c2"], [70])).toEqual({ chunks: 2, recipients: 70 });
      expect(await progress.planned({ ...fanout, drop_id: "d2" }, [], [0])).toEqual({ chunks: 0, recipients: 0 });
      const admitted = ["d1", "d2", "d3"].map((drop_id) => ({ drop_id, admitted_at: Date.now() }));
      await publishing.begin([...admitted, { drop_id: "old", admitted_at: Date.now() - 700_000 }]);
      expect(await publishing.among(["d1", "old", "d3", "d4"])).toEqual(["d1", "d3"]);
      await publishing.begin([]);
      await publishing.begin(admitted.slice(0, 1));
      await publishing.end(["d2", "d3", "d4"]);
      await publishing.end([]);
      const note = '"at":now,"until":now,"drop":"d1","affected":{"kind":"author","user":"bob"}';
      expect(await left()).toEqual([
        "timeline:x:attempts:DROPS:1:1700000000000 (1 d): a=failed b=begun",
        "timeline:x:fanout:drop_created:d1 (1 d): c1=now c2=now ~recipients=70",
        "timeline:x:fanout:drop_created:d2 (1 d): ~recipients=0",
        "timeline:x:publishing (10 min): d1=now",
        `timeline:x:waiting (15 min): planner 1={"consumer":"planner","seq":1,${note}}`,
      ]);
    });

    // Invariant 5.
    test("what a recovery and a fill of the log need is kept as long as the log", async () => {
      const { identity, fill, unreconciled, reconciledUpTo } = open();
      const log = { drops: "then", fanout: "", last: 7 };
      await identity.record({ backlog: { start: AT, acked: 5 }, log, recovered: true });
      expect(await identity.read()).toMatchObject({ redis: "same", from: AT, acked: 5, log });
      const times = { since: AT, until: AT + 1, started: AT + 2 };
      const begun = { id: "f", why: "first", log: "then", ...times, done: new Map() } as const;
      await fill.begin(begun);
      await fill.finish(begun, 0, 12);
      expect(await fill.read()).toEqual({ ...begun, done: new Map([[0, 12]]) });
      expect(await fill.lease(1).hold()).toBe(true);
      for (const since of [AT, AT + 1]) await unreconciled.note(since);
      await unreconciled.forget((await unreconciled.read()).names.slice(0, 1));
      expect((await unreconciled.read()).since).toBe(AT + 1);
      await reconciledUpTo.write(AT);
      expect(await reconciledUpTo.read()).toBe(AT);
      expect(await left()).toEqual([
        `timeline:x:continuity:{n} (for ever): from=AT+000 log=${JSON.stringify({ ...log, acked: 5 })} run=random`,
        "timeline:x:fill (7 d): f:0=12 id=f log=then since=AT+000 started=AT+002 until=AT+001 why=first",
        "timeline:x:filling:1 (10 s): random",
        "timeline:x:reconciled (7 d): AT+000",
        "timeline:x:unreconciled (7 d): random=AT+001",
      ]);
    });

    // Invariant 11.
    test("limits are exact, and in one slot, whatever the id of the user", async () => {
      const { limits } = open();
      const writes = limits.openWrites();
      const limit = (most: number) => ({ most, within: "1h", withinMs: 60 * MINUTE });
      const work = { write: async () => "done", changed: () => true, changesNothing: async () => false };
      for (const user of USERS) {
        const once = (subject: string) => {
          const uses = [
            { kind: "drops", user, limit: limit(3) },
            { kind: "same-body", user, subject, limit: limit(2) },
          ] as const;
          return writes.limited(uses, work).catch(({ code }: { readonly code: string }) => code);
        };
        const answers: string[] = [];
        for (const subject of ["a", "a", "a", "b", "b"]) answers.push(await once(subject));
        expect(answers).toEqual(["done", "done", "exhausted", "done", "exhausted"]);
      }
      await writes.close();
      const reached = await entire(limits.listReached({ drops: limit(3) } as never));
      expect(new Set(reached.map(({ user_id, used }) => `${user_id} ${used}`))).toEqual(
        new Set(USERS.map((user) => `${user} 3`)),
      );
      for (const request of ["r1", "r2"]) await limits.analyses.take("ada", "DRIFT", request);
      await limits.analyses.giveBack("ada", "r2");
      expect((await limits.analyses.look("ada", "DRIFT"))?.remaining).toBe(9);
      expect(await limits.takeRead("ada", 1)).toBe(0);
      const tokens = limits.openTokens(36_000);
      await tokens.take("ada", stopping);
      expect(await tokens.tryTake()).toBe(true);
      expect((await namesLeft()).filter((name) => /ada|source/.test(name))).toEqual([
        "timeline:x:asked:ada (1 h)",
        "timeline:x:limit:drops:{ada} (1 h)",
        "timeline:x:limit:same-body:{ada}:a (1 h)",
        "timeline:x:limit:same-body:{ada}:b (1 h)",
        "timeline:x:reads:ada (1 min)",
        "timeline:x:source-taken:{timeline:x:source-tokens} (1 h)",
        "timeline:x:source-tokens (1 min)",
      ]);
    });

    test("a list of users is cached for ten minutes unless it has changed, whatever the id of the user", async () => {
      const { userLists, dropUserLists } = open().caches;
      for (const user of USERS) {
        const { generation } = await userLists.read("following", user, "", 9);
        await userLists.fill("following", user, generation, ["bob", "cat"]);
        expect(await userLists.read("following", user, "bob", 9)).toMatchObject({ ids: ["cat"], total: 2 });
        const { generation: earlier } = await userLists.read("followers", user, "", 9);
        await userLists.discard("followers", user);
        expect(await userLists.fill("followers", user, earlier, ["ada"])).toBe(false);
      }
      for (const user of USERS.slice(1)) await userLists.forget(user);
      expect(await left()).toEqual([
        "timeline:x:users:followers-generation:{ada} (10 min): random",
        "timeline:x:users:following-generation:{ada} (10 min): random",
        "timeline:x:users:following:{ada} (10 min): =0 bob=0 cat=0",
      ]);
      await dropUserLists();
      expect(await left()).toEqual([]);
    });

    test("results of an analysis are cached for as long as a tier takes them, and forgotten with the account", async () => {
      const { caches, limits } = open();
      const noon = Date.UTC(2026, 0, 2, 12);
      const all = { version: "1", posts: 1, flow: {}, clout: {}, kudos: {}, pulse: { score: 1 } };
      await caches.analyses.fill({ did: "bob", type: "full", tier: "DRIFT" }, all, noon);
      const find = (tier: UserTier, minutes: number, type: AnalysisType = "pulse") =>
        caches.analyses.find({ did: "bob", type, tier }, noon + minutes * MINUTE);
      expect(await find("JET", 30)).toEqual({ version: "1", posts: 1, pulse: { score: 1 } });
      expect(await find("DRIFT", 59)).toBeDefined();
      for (const [tier, minutes] of [
        ["JET", 31],
        ["DRIFT", 13 * 60],
      ] as const)
        expect(await find(tier, minutes)).toBeUndefined();
      expect(await find("DRIFT", 0, "full")).toEqual(all);
      await caches.analyses.fill({ did: "bob", type: "pulse", tier: "LIFT" }, all, noon);
      await caches.analyses.fill({ did: "eve", type: "flow", tier: "LIFT" }, all, Date.now());
      await limits.takeRead("eve", 1);
      await caches.forgetAnalyses("eve");
      expect(await namesLeft()).toEqual([
        "analysis:bob:full:2026-01-02 (1 h)",
        "analysis:bob:pulse:2026-01-02 (30 min)",
      ]);
    });

    // Invariants 7, 11.
    test("the user of a registered stream listens, until the window after its end, also among many others", async () => {
      const { registry, listeners, listenersAmong, listen, streams } = open();
      const registered = await listen("ada");
      expect(await registry.renew([registered], moment())).toEqual(new Set());
      expect([await listeners.count(), (await listenersAmong([["ada", "eve"]]))?.("eve")]).toEqual([1, false]);
      expect((await entire(listeners.pages("bob"))).flat()).toEqual(["ada"]);
      await streams.logOut("ada");
      for (const user of ["ada", "eve"]) await streams.notifyUser(user, { event: "reset", reason: "test" }, user);
      expect([...(await streams.logoutsAmong(["ada", "eve"])).keys()]).toEqual(["ada"]);
      expect(await left()).toEqual([
        "sse_connection:x.ada (1 min): created_at=AT+000 pod_name=pod user_id=ada",
        "sse_connections:user:ada (2 min): x.ada",
        "sse_recent:connections (10 min): x.ada=now",
        "sse_recent:listing:ada (1 h): random",
        "sse_recent:users (11 min): ada=now",
        "timeline:x:logouts (400 d): ada=now",
      ]);
      const [users, others] = ["user", "other"].map((what) => Array.from({ length: 600 }, (_, at) => `${what}${at} é`));
      const all = await Promise.all((users as string[]).map((user) => listen(user)));
      await registry.removeUser("user0 é");
      const isListening = await listenersAmong([users as string[], [...(others as string[]), "ada"]]);
      const seen = [...(users as string[]), ...(others as string[]), "ada"].filter((user) => isListening?.(user));
      expect([seen.length, seen[0], seen.at(-1)]).toEqual([600, "user1 é", "ada"]);
      await registry.remove(all, moment());
      for (const { user } of all) await registry.removeUser(user);
      expect(await registry.sweep(Date.now() + 2 * MINUTE)).toEqual({ connections: 1, more: true });
      expect((await namesLeft()).filter((name) => name.startsWith("sse_"))).toEqual([
        "sse_connection:x.ada (1 min)",
        "sse_recent:listing:ada (1 h)",
        "sse_recent:users (11 min)",
      ]);
    });
  });
}
