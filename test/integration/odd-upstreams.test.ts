import { randomUUID } from "node:crypto";
import { promisify } from "node:util";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { afterEach, expect, test } from "@jest/globals";
import type { DropPage, TimelineEntry } from "../../src/contracts/timelines.js";
import { ListServiceService } from "../../src/gen/avion/lists.js";
import type { Drop } from "../../src/gen/avion/posts.js";
import type { Logger } from "../../src/kernel/logger.js";
import { silent } from "../../src/kernel/logger.js";
import { createOldestFirst } from "../../src/kernel/oldest-first.js";
import { collect, collectUpward } from "../../src/reads/collect.js";
import { createSources } from "../../src/reads/sources.grpc.js";
import { connectUpstreams } from "../../src/upstreams/upstreams.grpc.js";
import { startUpstreams, type UpstreamOptions } from "../support/upstreams.js";
import { World } from "../support/world.js";

const closing: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

/** A user who follows ann and bob, whose drops these upstreams show in their own way. */
async function serving(options: UpstreamOptions, log?: Logger) {
  const world = new World();
  for (const author of ["ann", "bob"]) {
    world.follow("rik", author);
    for (let at = 1; at <= 60; at++) world.post({ drop_id: `${author}${at}`, user_id: author, created_at: 1_000 + at });
  }
  const served = await startUpstreams(world, options);
  const upstreams = connectUpstreams({
    ...{ userServiceAddr: served.usersAddress, postServiceAddr: served.postsAddress, tls: {}, log },
  });
  closing.push(upstreams.close, () => served.stop());
  const sources = createSources(upstreams, createOldestFirst(8))("rik");
  return { world, served, upstreams, sources };
}

type Scene = Awaited<ReturnType<typeof serving>>;

const wanted = <Of extends object>(of?: Of) => ({
  ...{ reader: "rik", authors: ["ann", "bob"], count: 1_000, deadline: Date.now() + 60_000 },
  ...(of as Of),
});

const expected = ({ world }: Scene, isLeft: (drop: Drop) => boolean = () => true): string[] =>
  ["ann", "bob"]
    .flatMap((author) => world.dropsOf(author).filter(isLeft))
    .sort((a, b) => b.created_at - a.created_at || (a.drop_id < b.drop_id ? 1 : -1))
    .map(({ drop_id }) => drop_id);

const idsOf = (entries: readonly TimelineEntry[]): string[] => entries.map(({ drop }) => drop);

/** All drops of an author, a page at a time, as fan-out and audits read them. */
async function allOf({ upstreams }: Scene, author: string): Promise<string[]> {
  const found: string[] = [];
  let below: TimelineEntry | undefined;
  for (let pages = 0; pages < 200; pages++) {
    const page: DropPage = await upstreams.dropsByUser({ author, below, limit: 30 });
    found.push(...page.drops.map(({ drop_id }) => drop_id));
    if (!page.next) return found;
    below = page.next;
  }
  throw new Error("the pages do not end");
}

const SHAPES: [string, UpstreamOptions["reshape"]][] = [
  ["shorter than asked for", (drops) => drops.slice(0, 5)],
  ["of one author shorter", (drops, { user_id }) => (user_id === "ann" ? drops.slice(0, 5) : drops)],
  ["in the wrong order", (drops) => drops.toReversed()],
  ["with each drop twice", (drops) => [...drops, ...drops]],
];

// Invariant 5.
test.each(SHAPES)("pages %s hide nothing and show nothing twice", async (_, reshape) => {
  const scene = await serving({ reshape });
  expect(idsOf((await collect(scene.sources, wanted())).entries)).toEqual(expected(scene));
  const upward = await collectUpward(scene.sources, wanted({ above: { score: 1, drop: "a" }, top: 5_000 }));
  expect(idsOf(upward.entries)).toEqual(expected(scene).toReversed());
  expect(await allOf(scene, "ann")).toEqual(scene.world.dropsOf("ann").map(({ drop_id }) => drop_id));
});

// Invariant 5.
test.each<[string, (drops: Drop[], asked: { before: number }, of: { pinned: Drop }) => Drop[]]>([
  ["first on each page", (drops, _, { pinned }) => [pinned, ...drops.filter(({ drop_id }) => drop_id !== "ann2")]],
  ["first on the first page alone", (drops, { before }, { pinned }) => (before === 0 ? [pinned, ...drops] : drops)],
  [
    "first on the first page, and nowhere else",
    (drops, { before }, { pinned }) => [
      ...(before === 0 ? [pinned] : []),
      ...drops.filter(({ drop_id }) => drop_id !== "ann2"),
    ],
  ],
])("an old drop that is %s takes no other one away, and the order is counted and logged", async (_, reshape) => {
  const lines: object[] = [];
  const log = { ...silent, warn: (fields: object, line: string) => void lines.push({ ...fields, line }) };
  let scene: Scene | undefined;
  const pinning: UpstreamOptions["reshape"] = (drops, request) => {
    const pinned = scene?.world.dropsOf("ann").find(({ drop_id }) => drop_id === "ann2") as Drop;
    return request.user_id === "ann" ? reshape(drops.slice(0, 20), request, { pinned }) : drops;
  };
  scene = await serving({ reshape: pinning }, log);
  expect(idsOf((await collect(scene.sources, wanted())).entries)).toEqual(expected(scene));
  const upward = await collectUpward(scene.sources, wanted({ above: { score: 1_002, drop: "c" }, top: 5_000 }));
  expect(idsOf(upward.entries)).toEqual(expected(scene).slice(0, -4).toReversed());
  expect(new Set(await allOf(scene, "ann"))).toEqual(new Set(scene.world.dropsOf("ann").map(({ drop_id }) => drop_id)));
  expect(lines).toEqual([
    { method: "GetDropsByUserID", subject: "ann", count: 1, line: expect.stringContaining("newest drops first") },
  ]);
});

// Invariant 5.
test.each([
  ["seconds", 1e-3],
  ["microseconds", 1e3],
  ["nanoseconds", 1e6],
])("a drop dated in %s is left out alone, and counted", async (_, factor) => {
  const lines: object[] = [];
  const log = { ...silent, warn: (fields: object) => void lines.push(fields) };
  const at = Date.now();
  const reshape: UpstreamOptions["reshape"] = (drops) =>
    drops.map((drop) => (drop.drop_id === "ann30" ? { ...drop, created_at: Math.floor(at * factor) } : drop));
  const scene = await serving({ reshape }, log);
  expect(idsOf((await collect(scene.sources, wanted())).entries)).toEqual(
    expected(scene, ({ drop_id }) => drop_id !== "ann30"),
  );
  expect(lines).toEqual([{ method: "GetDropsByUserID", subject: "ann", count: 1 }]);
});

// Invariant 5.
test("pages that overlap show nothing twice, and end", async () => {
  let scene: Scene | undefined;
  const reshape: UpstreamOptions["reshape"] = (drops, { user_id, limit, before, max_id }) => {
    if (before === 0) return drops;
    const all = scene?.world.dropsOf(user_id) ?? [];
    const at = all.findIndex(({ drop_id }) => drop_id === max_id);
    return all.slice(Math.max(0, at - 2), Math.max(0, at - 2) + limit);
  };
  scene = await serving({ reshape });
  expect(await allOf(scene, "ann")).toEqual(scene.world.dropsOf("ann").map(({ drop_id }) => drop_id));
  expect(idsOf((await collect(scene.sources, wanted())).entries)).toEqual(expected(scene));
});

// Invariant 5.
test.each<[string, Partial<Drop>]>([
  ["an id of 129 bytes", { drop_id: "x".repeat(129) }],
  ["no id", { drop_id: "" }],
  ["a negative time", { created_at: -1 }],
  ["too many recipients", { recipients: Array(1_001).fill("u") }],
])("drops with %s spoil nothing beside them, alone on a page or not", async (_, change) => {
  const spoilt = new Set(["ann60", "ann40", ...Array.from({ length: 12 }, (_, at) => `ann${30 - at}`)]);
  const lines: object[] = [];
  const log = { ...silent, warn: (fields: object) => void lines.push(fields) };
  const scene = await serving(
    {
      reshape: (drops) => drops.slice(0, 10).map((drop) => (spoilt.has(drop.drop_id) ? { ...drop, ...change } : drop)),
    },
    log,
  );
  const left = expected(scene, ({ drop_id }) => !spoilt.has(drop_id));
  const { entries } = await collect(scene.sources, wanted());
  expect(idsOf(entries)).toEqual(left);
  expect(lines).toEqual([{ method: "GetDropsByUserID", subject: "ann", count: 1 }]);
});

// Invariant 5.
test("a time beyond the safe integers leaves out its drop alone", async () => {
  const scene = await serving({});
  scene.world.post({ drop_id: "beyond", user_id: "ann", created_at: 1_500 });
  const beyond = (2n ** 60n).toString();
  const { world } = scene;
  const dropsOf = world.dropsOf.bind(world);
  world.dropsOf = (author) =>
    dropsOf(author).map((drop) => (drop.drop_id === "beyond" ? { ...drop, created_at: beyond as never } : drop));
  const left = expected(scene, ({ drop_id }) => drop_id !== "beyond");
  expect(await allOf(scene, "ann")).toEqual(left.filter((id) => id.startsWith("ann")));
});

// Invariant 5.
test("followers and followings that are no ids spoil nothing beside them, alone on a page or not", async () => {
  const scene = await serving({
    pageLimit: 1,
    reshapeUsers: (ids) => ids.map((id) => (id === "ann" ? "x".repeat(129) : id)),
  });
  expect(await scene.sources.following("rik", Date.now() + 10_000)).toEqual(["bob"]);
  const page = await scene.upstreams.following({ user: "rik", size: 1, token: "" });
  expect([page.ids, page.next === ""]).toEqual([[], false]);
});

/** 110 kB: with the drops beside them they make pages of 16 MiB and more. */
const RECIPIENTS = Array.from({ length: 1_000 }, (_, at) => `${at}`.padStart(110, "u"));

// Invariant 11.
test("pages that are larger than a message are asked for in parts, and grow again", async () => {
  const scene = await serving({});
  for (let at = 0; at < 400; at++)
    scene.world.post({
      ...{ drop_id: `dm${at}`, user_id: "ann", created_at: 2_000 + at, visibility: "direct" },
      recipients: RECIPIENTS,
    });
  const first = await scene.upstreams.dropsByUser({ author: "ann", below: undefined, limit: 200 });
  expect(first.drops).toHaveLength(100);
  const calls = scene.served.calls("GetDropsByUserID");
  expect(idsOf((await collect(scene.sources, wanted())).entries)).toEqual(
    expected(scene, ({ visibility }) => visibility === 1),
  );
  expect(scene.served.calls("GetDropsByUserID") - calls).toBeLessThan(30);
});

// Invariant 5.
test("a drop that fits no message is left out, alone", async () => {
  const huge = Array.from({ length: 170_000 }, () => "u".repeat(110));
  const scene = await serving({
    reshape: (drops) => drops.map((drop) => (drop.drop_id === "ann30" ? { ...drop, recipients: huge } : drop)),
  });
  const left = expected(scene, ({ drop_id }) => drop_id !== "ann30");
  expect(idsOf((await collect(scene.sources, wanted())).entries)).toEqual(left);
});

// Invariant 11.
test("an author of very many drops that the reader does not see takes a bounded number of calls a page, and the pages lead past them", async () => {
  const scene = await serving({ reshape: (drops, { user_id }) => (user_id === "bot" ? drops.slice(0, 5) : drops) });
  for (let at = 0; at < 8_000; at++)
    scene.world.post({
      ...{ drop_id: `dm${at}`, user_id: "bot", created_at: 2_000 + at, visibility: "direct" },
      recipients: ["somebody"],
    });
  scene.world.post({ drop_id: "hello", user_id: "bot", created_at: 1_990 });
  const authors = ["ann", "bob", "bot"];
  const first = await collect(scene.sources, wanted({ authors }));
  expect(scene.served.calls("GetDropsByUserID")).toBeLessThanOrEqual(1_010);
  expect([first.entries, first.reached?.drop.startsWith("dm")]).toEqual([[], true]);
  const second = await collect(scene.sources, wanted({ authors, below: first.reached }));
  expect(second.reached).toBeUndefined();
  expect(idsOf(second.entries)).toEqual(["hello", ...expected(scene)]);
});

// Invariant 11.
test("a page far above its cursor takes a bounded number of calls, and comes to the first drop", async () => {
  const scene = await serving({});
  const authors = Array.from({ length: 1_000 }, (_, at) => `quiet${at}`);
  scene.world.post({ drop_id: "late", user_id: "quiet7", created_at: 1_700_000_000_000 });
  const above = { score: 1, drop: "a" };
  const page = await collectUpward(scene.sources, wanted({ authors, above, top: 1_800_000_000_000 }));
  expect(scene.served.calls("GetDropsByUserID")).toBeLessThanOrEqual(3_000);
  expect(page.entries.map(({ drop }) => drop)).toEqual(["late"]);
});

test("lists whose ids are no UUIDs spoil no other list, and are no list of the user", async () => {
  const list = randomUUID();
  const others = ["friends", list.toUpperCase(), "", `${list}\n`];
  const asked: string[] = [];
  const server = new Server();
  const { findLists, getListReader } = ListServiceService;
  server.addService(
    { findLists, getListReader },
    {
      findLists: (_: unknown, answer: (error: null, page: object) => void) =>
        answer(null, { list_ids: [...others, list], next_page_token: "" }),
      getListReader: (
        { request }: { readonly request: { readonly list_id: string } },
        answer: (error: null, reader: object) => void,
      ) => {
        asked.push(request.list_id);
        answer(null, { member_ids: ["ann"], followed_ids: [], owner_id: "rik" });
      },
    },
  );
  const bind = promisify(server.bindAsync.bind(server));
  const address = `127.0.0.1:${await bind("127.0.0.1:0", ServerCredentials.createInsecure())}`;
  closing.push(() => server.forceShutdown());
  const upstreams = connectUpstreams({ userServiceAddr: address, postServiceAddr: address, tls: {} });
  closing.push(upstreams.close);
  expect((await upstreams.findLists({ member: "ann", size: 10, token: "" })).ids).toEqual([list]);
  const read = (id: string) => upstreams.listReader("rik", id, Date.now() + 5_000);
  expect(await read(list)).toMatchObject({ member_ids: ["ann"] });
  for (const id of others) await expect(read(id)).rejects.toMatchObject({ code: "notfound" });
  expect(asked).toEqual([list]);
});
