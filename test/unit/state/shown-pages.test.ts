import { expect, test } from "@jest/globals";
import type { Byline } from "../../../src/contracts/timelines.js";
import { GetTimelineResponse } from "../../../src/gen/avion/timeline.js";
import { createShownPages } from "../../../src/state/entries/shown-pages.js";
import { SPARE, type Stored } from "../../../src/state/entries/stored.js";
import { Hidden } from "../../../src/state/hidden/hidden.js";

const KEY = "timeline:local";
const PAGE = { drops: 3, since: 0 };

/** Pages of drops by these authors, newest first. */
function pagesOf(authors: readonly (string | undefined)[], more: Partial<Stored> = {}) {
  const entries = authors.map((_, age) => ({ score: 1_000 - age, drop: `d${age}` }));
  const signed = authors.flatMap((author, age): [string, Byline][] => (author ? [[`d${age}`, { author }]] : []));
  const stored: Stored = { floor: 0, entries, areAlive: true, ...more };
  const show = createShownPages({ read: async () => stored, bylinesOf: async () => new Map(signed) });
  return (hidden: readonly string[], page = PAGE) =>
    show({ key: KEY, page }, new Hidden("eve", new Map(hidden.map((user) => [user, "all"]))));
}

const idsOf = (page: Buffer | undefined) => page && GetTimelineResponse.decode(page).drop_ids;

test("a page is full without what the viewer does not see, and shared by those who see the same", async () => {
  const show = pagesOf(["ada", "bob", "ada", "cat", "dan"]);
  const first = await show(["bob"]);
  expect(GetTimelineResponse.decode(first as Buffer)).toMatchObject({ drop_ids: ["d0", "d2", "d3"], has_more: true });
  expect(await show(["bob", "fay"])).toBe(first);
  expect(idsOf(await show(["ada"]))).toEqual(["d1", "d3", "d4"]);
  expect(idsOf(await show(["fay"]))).toEqual(["d0", "d1", "d2"]);
});

test("the last page says that nothing follows", async () => {
  const page = await pagesOf(["ada", "bob", "ada"])(["bob"]);
  expect(GetTimelineResponse.decode(page as Buffer)).toMatchObject({ drop_ids: ["d0", "d2"], has_more: false });
});

test("there is no page where one read does not tell what it shows", async () => {
  const authors = ["ada", "bob", "ada", "cat", "dan"];
  const many = Array.from({ length: PAGE.drops + 1 + SPARE }, () => "ada");
  expect(await pagesOf(many)(["ada"])).toBeUndefined();
  expect(await pagesOf(["ada", undefined, "bob"])(["bob"])).toBeUndefined();
  expect(await pagesOf(authors, { floor: undefined })(["bob"])).toBeUndefined();
  expect(await pagesOf(authors, { areAlive: false })(["bob"])).toBeUndefined();
  expect(await pagesOf(authors)(["bob"], { drops: 3, since: 997 })).toBeUndefined();
});

test("an author who was not known, or could not be asked for, is asked for again", async () => {
  const stored: Stored = { floor: 0, entries: [{ score: 1, drop: "d0" }], areAlive: true };
  const answers: (() => Promise<ReadonlyMap<string, Byline>>)[] = [
    async () => new Map(),
    () => Promise.reject(new Error("Redis is away")),
    async () => new Map([["d0", { author: "ada" }]]),
  ];
  const bylinesOf = () => (answers.shift() as (typeof answers)[number])();
  const show = createShownPages({ read: async () => stored, bylinesOf });
  const read = () => show({ key: KEY, page: PAGE }, new Hidden("eve", new Map([["bob", "all"]])));
  expect(await read()).toBeUndefined();
  await expect(read()).rejects.toThrow("away");
  expect(idsOf(await read())).toEqual(["d0"]);
  expect(idsOf(await read())).toEqual(["d0"]);
});
