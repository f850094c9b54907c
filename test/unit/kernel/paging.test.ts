import { expect, test } from "@jest/globals";
import { readPages, readTime } from "../../../src/kernel/paging.js";

async function idsOf(pages: Readonly<Record<string, { ids: string[]; next: string }>>, maxPages?: number) {
  const found: string[] = [];
  const read = async (token: string) => pages[token] ?? { ids: [], next: "" };
  for await (const { ids } of readPages(read, maxPages)) found.push(...ids);
  return found;
}

const TWO = { "": { ids: ["ada"], next: "b" }, b: { ids: ["bob"], next: "" } };
const CIRCLE = { "": { ids: ["ada"], next: "b" }, b: { ids: ["bob"], next: "c" }, c: { ids: ["cyd"], next: "b" } };

test("a list is read to the page that names no next one", async () => {
  expect(await idsOf(TWO)).toEqual(["ada", "bob"]);
  expect(await idsOf({})).toEqual([]);
});

// Invariant 11.
test("a page that leads to itself, and a list that does not end, fail", async () => {
  await expect(idsOf({ "": { ids: ["ada"], next: "b" }, b: { ids: ["bob"], next: "b" } })).rejects.toThrow("itself");
  await expect(idsOf(CIRCLE, 9)).rejects.toThrow("in a circle");
  await expect(idsOf(CIRCLE, 3)).rejects.toThrow("does not end within 3 pages");
});

// Invariant 11.
test("a list goes on after empty pages, and fails after a thousand in a row", async () => {
  const after = (most: number) => async (token: string) =>
    Number(token) < most ? { ids: [], next: `${Number(token) + 1}` } : { ids: ["ada"], next: "" };
  const found: string[] = [];
  for await (const { ids } of readPages(after(999))) found.push(...ids);
  expect(found).toEqual(["ada"]);
  let calls = 0;
  const endless = async (token: string) => ({ ids: [], next: `${token}${++calls % 7}` });
  const read = async () => {
    for await (const page of readPages(endless)) expect(page.ids).toEqual([]);
  };
  await expect(read()).rejects.toThrow("1000 pages of a list in a row are empty");
  expect(calls).toBe(1_000);
});

test("a time of a call in another unit is refused with the name of the unit", () => {
  for (const [unit, time] of [
    ["seconds", 1_795_000_000],
    ["microseconds", 1_795e12],
    ["nanoseconds", 1_795e15],
  ] as const)
    expect(() => readTime("expires_at", time)).toThrow(`expires_at: is a time in ${unit}`);
  for (const time of [0, 1, 999_999_999, 1_795e9, Number.MAX_SAFE_INTEGER]) expect(readTime("since", time)).toBe(time);
});
