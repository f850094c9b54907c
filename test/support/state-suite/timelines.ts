import { describe, expect, test } from "@jest/globals";
import type { TimelineEntry } from "../../../src/contracts/timelines.js";
import { encodeId } from "../../../src/kernel/ids.js";
import { audienceOf, authorTimelineOf, Follows, GLOBAL, homeOf, LOCAL } from "../../../src/state/index.js";
import { bylinesKey } from "../../../src/state/keys.js";
import { AT, entire, entry, type Scene, toHomes } from "./scene.js";

const EVES = { author: "bob", original: "eve" };

/** Describes what operations on timelines, and on what belongs to them, answer and leave. */
export function describeTimelines({ open, left, encodingOf, isCluster }: Scene): void {
  const unlessCluster = (...lines: readonly string[]) => (isCluster ? [] : lines);

  describe("timelines", () => {
    // Invariant 11.
    test("homes take drops, and have a time to live; an erased user gets none", async () => {
      const { writer, erased } = open();
      await erased.record("eve", 1);
      expect(await erased.among(["ada", "eve"])).toEqual(new Set(["eve"]));
      await writer.addToHomes(toHomes(["ada", "eve"], "d1"));
      expect(await writer.addToHomes(toHomes(["ada", "é"], "d2"))).toBe(true);
      expect(await writer.addToHomes(toHomes(["ada"], "d2", "d3"))).toBe(false);
      expect(await left()).toEqual([
        "timeline:home:=w6k (30 d): d2=AT+000",
        "timeline:home:ada (30 d): d1=AT+000 d2=AT+000 d3=AT+001",
        "timeline:x:erased (for ever): eve=0 ~floor=0",
      ]);
    });

    // Invariant 11.
    test("homes keep who reposted what beside them, as long as they live", async () => {
      const { writer, store, hidden } = open();
      const home = homeOf("ada");
      const repost = (drop: string, at: number) => ({ ...entry(drop, at), by: { ...EVES, repostOf: "d é" } });
      await writer.addToHomes([{ audience: audienceOf(["ada"]), entries: [entry("d1"), repost("r1", 1)] }]);
      await hidden.fill("ada");
      await store.beginRebuild(home, -7);
      const snapshot = { entries: [repost("r2", 2), repost("r1", 1), entry("d1")], floor: 0 };
      expect(await store.finishRebuild(home, { mark: -7, gone: [], snapshot })).toBe(true);
      const read = await store.read({ key: home, direction: "older", from: undefined, count: 9 });
      expect(read).toMatchObject({ hasReposts: true, entries: snapshot.entries.map(({ drop }) => ({ drop })) });
      expect(read.entries.map(({ by }) => by?.repostOf)).toEqual(["d é", "d é", undefined]);
      expect((await left()).filter((line) => line.includes("bylines"))).toEqual([
        "timeline:x:bylines:{timeline:home:ada} (30 d): r1=bob,eve,,=ZCDDqQ r2=bob,eve,,=ZCDDqQ",
      ]);
      await store.forget(home);
      expect((await left()).filter((line) => line.includes("bylines"))).toEqual([]);
    });

    // Invariant 11.
    test.each([
      ["a list", "listpack", 4],
      ["a table", "hashtable", 80],
    ])("a read says who reposted what, where Redis keeps the bylines as %s", async (_, encoding, length) => {
      const { writer, store } = open();
      const home = homeOf("ada");
      const repostOf = (at: number) => `${Math.floor(at / 9)}`.padEnd(length, "-");
      const repost = (at: number) => ({ ...entry(`r${at}`, at), by: { ...EVES, repostOf: repostOf(at) } });
      const entries = Array.from({ length: 210 }, (_, at) => (at % 3 === 2 ? repost(at) : entry(`d${at}`, at)));
      await writer.addToHomes([{ audience: audienceOf(["ada"]), entries }]);
      expect(await encodingOf(bylinesKey(home))).toBe(encoding);
      const signed = (at: number) => (at % 3 === 2 ? repost(at) : { drop: `d${at}`, score: AT + at });
      const newest = entries.map((_, at) => signed(at)).reverse();
      const middle = signed(100);
      for (const count of [1, 64, 65, 150]) {
        const read = async (direction: "older" | "newer", from?: TimelineEntry) =>
          (await store.read({ key: home, direction, from, count })).entries;
        expect(await read("older")).toEqual(newest.slice(0, count));
        expect(await read("older", middle)).toEqual(newest.slice(110, 110 + count));
        expect(await read("newer", middle)).toEqual(newest.slice(0, 109).reverse().slice(0, count));
      }
    });

    // Invariant 11.
    test("homes keep beside them what only suspensions judge, whether fan-out or a rebuild wrote it", async () => {
      const { writer, store, hidden } = open({ TIMELINE_HOME_REPLIES: "all" });
      const ann = "https://far.example/u/ann";
      const signed = (drop: string, by: { author: string; parent?: string }) => ({ ...entry(drop), by });
      const entries = [
        ...[signed("d1", { author: "bob" }), signed("d2", { author: "bob", parent: "cat" })],
        ...[signed("far1", { author: ann }), signed("far2", { author: ann, parent: "cat" })],
        ...[signed("https://far.example/3", { author: ann }), signed("4", { author: "https:x", parent: ann })],
        { ...entry("r1"), by: { ...EVES, repostOf: "e1" } },
      ];
      await writer.addToHomes([{ audience: audienceOf(["ada"]), entries }]);
      const beside = async () => (await left()).filter((line) => line.includes("standing-bylines"));
      const [token, odd] = [encodeId(ann), encodeId("https:x")];
      const kept = `4=${odd},,${token} d2==,,cat far1=${token} far2=${token},,cat`;
      expect(await beside()).toEqual([`timeline:x:standing-bylines:{timeline:home:ada} (30 d): ${kept}`]);
      await store.forget(homeOf("ada"));
      expect(await beside()).toEqual([]);
      await hidden.fill("ada");
      await store.beginRebuild(homeOf("ada"), -7);
      const rebuilt = { mark: -7, gone: [], snapshot: { entries, floor: 0 } };
      expect(await store.finishRebuild(homeOf("ada"), rebuilt)).toBe(true);
      expect(await beside()).toEqual([`timeline:x:standing-bylines:{timeline:home:ada} (30 d): ${kept}`]);
    });

    // Invariant 11.
    test("bylines beside a home go soon after their entries", async () => {
      const { writer } = open({ TIMELINE_MAX_ENTRIES: "200", TIMELINE_HOME_REPLIES: "all" });
      const add = (drop: string, at: number, by: object = { parent: "cat" }) => {
        const signed = { ...entry(drop, at), by: { author: "bob", ...by } };
        return writer.addToHomes([{ audience: audienceOf(["ada"]), entries: [signed] }]);
      };
      for (let at = 0; at < 1_000; at++) {
        await add(`d${at}`, 2 * at);
        await add(`r${at}`, 2 * at + 1, { original: "eve", repostOf: `e${at}` });
      }
      for (let at = 0; at < 300; at++) {
        await add(`x${at}`, 3_000 + at);
        await writer.removeFromHomes([{ audience: audienceOf(["ada"]), drops: [`x${at}`] }]);
      }
      const sizes = (await left()).flatMap((line) => (line.includes("bylines") ? [line.split(" ").length - 3] : []));
      expect(sizes).toHaveLength(2);
      // There are 95 to 100 entries of either kind.
      expect(Math.max(...sizes)).toBeLessThan(250);
    });

    // Invariant 11.
    test("a rebuild keeps no byline of somebody who was erased meanwhile", async () => {
      const { store, hidden, erased } = open({ TIMELINE_HOME_REPLIES: "all" });
      const home = homeOf("ada");
      await hidden.fill("ada");
      await store.beginRebuild(home, -7);
      await erased.record("eve", 1);
      const by = [
        { author: "bob", original: "eve", repostOf: "e1" },
        { author: "bob", parent: "eve" },
        { author: "bob", parent: "cat" },
      ];
      const entries = by.map((each, at) => ({ ...entry(`d${at}`, at), by: each }));
      expect(await store.finishRebuild(home, { mark: -7, gone: [], snapshot: { entries, floor: 0 } })).toBe(true);
      expect((await left()).filter((line) => line.includes("bylines"))).toEqual([
        "timeline:x:standing-bylines:{timeline:home:ada} (30 d): d2==,,cat",
      ]);
    });

    test("removed drops leave homes; what a listener had is noted", async () => {
      const { writer, listen, registry } = open();
      await listen("ada");
      await writer.addToHomes(toHomes(["ada", "eve"], "d1", "d2", "d3"));
      const removal = (drop: string) => [{ audience: audienceOf(["ada", "eve", "nobody"]), drops: [drop] }];
      await writer.removeFromHomes(removal("d1"));
      await writer.removeFromHomesWithNote(removal("d2"));
      expect(await writer.holdersAmong(["ada", "eve"], "d2")).toEqual(["ada"]);
      expect(await writer.havingAmong(["ada", "eve"], "d2")).toEqual([]);
      expect(await writer.havingAmong(["ada", "nobody", "eve"], "d3")).toEqual(["ada", "eve"]);
      await registry.removeUser("ada");
      expect((await left()).filter((line) => !line.startsWith("sse_"))).toEqual([
        "timeline:home:ada (30 d): d3=AT+002",
        "timeline:home:eve (30 d): d3=AT+002",
        "timeline:x:taken:{timeline:home:ada} (10 min): d2=now",
      ]);
    });

    // Invariant 11.
    test("local and global keep drops and their authors, of remote drops no more than their share", async () => {
      const { writer, local, store } = open({ TIMELINE_MAX_ENTRIES: "20", TIMELINE_GLOBAL_REMOTE_SHARE: "0.1" });
      const far = (at: number) => ({ ...entry(`far${at}`, at), remote: true as const });
      for (const drop of ["d1", "d2"]) await writer.addShared([{ timelines: ["local", "global"], entry: entry(drop) }]);
      const remote = ["far1", "far2", "far3"];
      for (const at of [1, 2, 3]) await writer.addShared([{ timelines: ["global"], entry: far(at) }]);
      await writer.removeShared(["d1"]);
      expect(await local.newest({ until: AT + 9, count: 9 })).toEqual([{ drop: "d2", createdAt: AT }]);
      expect(await local.among(["d1", "d2"])).toEqual(new Set(["d2"]));
      expect(await store.beginRebuild(GLOBAL, -7)).toEqual(["d2", ...remote]);
      const snapshot = { entries: [entry("d2"), far(5), far(6)], floor: 0, remoteFloor: AT + 4 };
      expect(await store.finishRebuild(GLOBAL, { mark: -7, gone: remote, snapshot })).toBe(true);
      for (const at of [7, 8]) await writer.addShared([{ timelines: ["global"], entry: far(at) }]);
      const drops = ["d1", "d2", ...remote, "far5", "far6", "far7", "far8"];
      expect(await left()).toEqual([
        "timeline:global (for ever): d2=AT+000 far7=AT+007 far8=AT+008 ~floor=0",
        "timeline:local (for ever): d2=AT+000",
        `timeline:x:bylines:{timeline:global} (for ever): ${drops.map((drop) => `${drop}=bob`).join(" ")}`,
        "timeline:x:bylines:{timeline:local} (for ever): d1=bob d2=bob",
        "timeline:x:remote:{timeline:global} (for ever): far7=AT+007 far8=AT+008 ~floor=AT+006",
        "timeline:x:taken:{timeline:global} (10 min): far1=now far2=now far3=now",
      ]);
    });

    // Invariant 11.
    test("facts about drops live as long as they are asked for", async () => {
      const { writer } = open();
      await writer.addToHomes(toHomes(["bob"], "d1"));
      await writer.rememberCreations(new Map([["d1", "bob"]]));
      await writer.rememberActor("far", "https://far.example/ann");
      await writer.rememberReposted(["bob"]);
      await writer.rememberDirect("d2");
      expect(await left()).toEqual([
        "timeline:home:bob (30 d): d1=AT+000",
        "timeline:x:actor:far (30 d): https://far.example/ann",
        "timeline:x:created-at:d1 (1 d): AT+000",
        "timeline:x:direct:d2 (30 d): 1",
        "timeline:x:reposted:bob (1 h): 1",
      ]);
    });

    test("a rebuilt home has the drops of the snapshot, and what arrived meanwhile", async () => {
      const { writer, store, hidden, ...state } = open({ TIMELINE_HOME_REPLIES: "all" });
      const home = homeOf("ada");
      await writer.addToHomes(toHomes(["ada"], "stale", "kept"));
      expect(await store.beginRebuild(home, -6)).toBe("hidden unknown");
      await hidden.fill("ada");
      expect(await store.beginRebuild(home, -7)).toEqual(["stale", "kept"]);
      await writer.addToHomes([{ audience: audienceOf(["ada"]), entries: [entry("arrived", 9), entry("earlier", 4)] }]);
      const entries = [entry("kept", 1), entry("missed", 3), entry("earlier", 5)];
      const rebuilt = { mark: -7, gone: ["stale"], snapshot: { entries, floor: 0 } };
      expect(await store.finishRebuild(home, rebuilt)).toBe(true);
      expect(await store.beginRebuild(home, -8)).toBe("complete");
      expect([await store.isComplete(home), await store.createdAt(home, "missed")]).toEqual([true, AT + 3]);
      expect(await writer.interruptRebuilds(["ada", "eve"])).toEqual([{ floor: 0, oldest: AT + 1 }, {}]);
      expect(await writer.recentReadersAmong(["ada", "eve"], 60_000)).toEqual(["ada"]);
      const audited = await state.audited.home("ada", async () => new Set());
      expect(audited?.entries.map(({ drop }) => drop)).toEqual(["kept", "missed", "earlier", "arrived"]);
      expect(await state.audited.sample(9)).toEqual(["ada"]);
      expect(await state.readEntry({ kind: "home", name: "ada" }, "kept", "bob")).toEqual({ floor: 0, score: AT + 1 });
      expect((await entire(state.listHomes())).flatMap(({ users }) => users)).toEqual(["ada"]);
      expect(await left()).toEqual([
        "timeline:home:ada (30 d): arrived=AT+009 earlier=AT+004 kept=AT+001 missed=AT+003 ~floor=0",
        "timeline:x:hidden:{timeline:home:ada} (30 d): mel=all ~state=complete",
        ...unlessCluster("timeline:x:hiders:mel (60 d): ada"),
        "timeline:x:taken:{timeline:home:ada} (10 min): stale=now",
      ]);
    });

    // Invariant 5.
    test("beside a home is whom its user follows, and to whom replies are in it or left out", async () => {
      const { writer, store, hidden, relations, ...state } = open({ TIMELINE_HOME_REPLIES: "followed" });
      const home = homeOf("ada");
      await hidden.fill("ada");
      const replyTo = (parent: string, at: number) => ({
        ...entry(`to-${parent}-${at}`, at),
        by: { author: "bob", parent },
      });
      const addReply = (parent: string, at: number) =>
        writer.addToHomes([{ audience: audienceOf(["ada"]), entries: [replyTo(parent, at)] }]);
      expect(await store.beginRebuild(home, -7)).toEqual([]);
      for (const parent of ["cat", "eve"]) await addReply(parent, 1);
      const follows = new Follows("ada", ["bob", "cat", "dan"]);
      expect(follows.shows({ author: "bob", parent: "gus" })).toBe(false);
      const snapshot = { entries: [entry("d1")], floor: 0, follows };
      expect(await store.finishRebuild(home, { mark: -7, gone: [], snapshot })).toBe(true);
      for (const parent of ["dan", "fay"]) await addReply(parent, 2);
      expect(await store.isComplete(home)).toBe(true);
      expect(await store.followedAmong(home, ["bob", "cat", "eve", "hal"])).toEqual(new Set(["bob", "cat"]));
      const asked = ["ada", "bob"];
      expect(await relations.viewersAmong(asked, { author: "ivy", parent: "fay" })).toEqual({
        seeing: [],
        unknown: ["bob"],
      });
      await writer.interruptRebuilds(["ada"], () => [{ following: "bob", follows: false }]);
      expect(await store.isComplete(home)).toBe(true);
      await writer.interruptRebuilds(["ada"], () => [{ following: "fay", follows: true }]);
      expect(await store.isComplete(home)).toBe(false);
      expect((await state.readEntry({ kind: "home", name: "ada" }, "d1", "bob")).floor).toBeUndefined();
      expect(await left()).toEqual([
        "timeline:home:ada (30 d): d1=AT+000 to-cat-1=AT+001 to-dan-2=AT+002",
        "timeline:x:follows:{timeline:home:ada} (30 d): cat=2 dan=2 eve=0 fay=1 gus=0 ~left=2 ~state=complete",
        "timeline:x:hidden:{timeline:home:ada} (30 d): mel=all ~state=complete",
        ...unlessCluster("timeline:x:hiders:mel (60 d): ada"),
        "timeline:x:standing-bylines:{timeline:home:ada} (30 d): to-cat-1==,,cat to-dan-2==,,dan to-eve-1==,,eve",
      ]);
    });

    test("a rebuild that was interrupted, or whose timeline was forgotten, writes nothing", async () => {
      const { writer, store, hidden, lease } = open();
      await writer.addToHomes(toHomes(["ada"], "d1"));
      await hidden.fill("ada");
      for (const key of [homeOf("ada"), LOCAL]) await store.beginRebuild(key, -7);
      expect(await writer.interruptRebuilds(["ada"])).toEqual([{ floor: undefined, oldest: AT }]);
      await store.forget(LOCAL);
      const rebuilt = { mark: -7, gone: [], snapshot: { entries: [entry("d2")], floor: 0 } };
      for (const key of [homeOf("ada"), LOCAL]) expect(await store.finishRebuild(key, rebuilt)).toBe(false);
      expect([await store.rebuildLease(LOCAL).hold(), await lease("audit").hold()]).toEqual([true, true]);
      expect(await lease("audit").hold()).toBe(false);
      expect(await left()).toEqual([
        "timeline:home:ada (30 d): d1=AT+000",
        "timeline:x:auditing (10 s): random",
        "timeline:x:bylines:{timeline:local} (for ever): d2=bob",
        "timeline:x:hidden:{timeline:home:ada} (30 d): mel=all ~state=complete",
        ...unlessCluster("timeline:x:hiders:mel (60 d): ada"),
        "timeline:x:rebuilding:timeline:local (10 s): random",
      ]);
    });

    test("a big author's drops are stored once, and the big authors of a user as they follow and unfollow", async () => {
      const { authorStates, authors, pulls, store, listen, listeners } = open();
      await authorStates.choose("bob", "pull");
      for (const [at, drop] of ["d1", "d2", "d3"].entries()) await authors.add("bob", entry(drop, at));
      await authors.remove("bob", "d1");
      await authors.removeWithNote("bob", "d2");
      expect(await authors.heldBeforeDeletion("bob", "d2")).toBe(true);
      expect(await authors.holdingAmong("bob", ["d2", "d3"])).toEqual(new Map([["d3", { drop: "d3", score: AT + 2 }]]));
      await pulls.fill("ada", async () => ["bob", "cat"]);
      await authors.addToPulls(new Map([["dan", ["ada", "eve"]]]));
      expect((await store.mergedKeysOf(homeOf("ada"))).sort()).toEqual(["bob", "dan"].map(authorTimelineOf));
      await listen("ada");
      const visited: string[] = [];
      await listeners.visit("bob", async (users) => void visited.push(...users));
      expect(visited).toEqual(["ada"]);
      await authors.removeFromPulls(new Map([["dan", ["ada"]]]));
      await authorStates.choose("cat", "tier");
      await authorStates.choose("dan", "push");
      await authorStates.forget("dan");
      expect((await left()).filter((line) => !line.startsWith("sse_"))).toEqual([
        "timeline:author:bob (30 d): d3=AT+002",
        "timeline:tombstones (for ever): ~floor=7.5 d ago",
        "timeline:x:edges:{n} (for ever): ~floor=1",
        "timeline:x:pulled (for ever): bob=promoting:hand:now cat=tiering:hand:now ~born=now ~version=now",
        "timeline:x:pulls:{timeline:home:ada} (30 d): bob ~complete",
        "timeline:x:taken:{timeline:author:bob} (10 min): d2=now",
      ]);
    });

    test("hidden users are stored as the users service has them", async () => {
      const { hidden, relations } = open();
      expect((await (await hidden.known("ada")).among([])).hides({ author: "mel" })).toBe(true);
      const changes = ["mel", "tom"].map((target) => ({ user: "ada", target, hiding: "all", isOwn: true }) as const);
      const now = changes.map((change) => ({ ...change, hiding: change.target === "mel" ? "all" : undefined }));
      expect(await relations.change(changes, false)).toEqual(now);
      expect(await relations.viewersAmong(["ada", "eve"], { author: "mel" })).toEqual({ seeing: [], unknown: ["eve"] });
      expect(await left()).toEqual([
        "timeline:x:hidden:{timeline:home:ada} (30 d): mel=all ~state=complete",
        ...unlessCluster("timeline:x:hiders:mel (60 d): ada"),
      ]);
    });
  });
}
