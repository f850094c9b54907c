import { expect, test } from "@jest/globals";
import { createPageTokens } from "../../../../src/kernel/paging.js";
import { chunkOf, fillPage, textPages } from "../../../../src/posts/drops/pages.js";

const tokens = createPageTokens("secret");
const keyOf = (row: number): [number] => [row];

/** The list counts down from `first` to 1, and shows some of it. */
function listing(first: number, isShown: (row: number) => boolean) {
  const asked: number[] = [];
  const page = (page_size: number, page_token = "") =>
    fillPage(tokens.open<[number]>(["list"], { page_size, page_token }, { default: 10, max: 10 }), {
      ...{ keyOf, most: 10 },
      read: async (after, limit) => {
        asked.push(limit);
        const newest = (after?.[0] ?? first + 1) - 1;
        const rows = Array.from({ length: Math.min(limit, newest) }, (_, n) => newest - n);
        return chunkOf(rows, limit, keyOf);
      },
      keep: async (rows) => rows.filter(isShown),
    });
  return { page, asked };
}

test("a page reads on over what is left out, in parts of the longest size", async () => {
  const { page, asked } = listing(60, (row) => row % 20 === 0);
  expect(await page(2)).toMatchObject({ items: [60, 40] });
  expect(asked).toEqual([3, ...Array(4).fill(10)]);
});

test("a page that is full at the end of the list has no token", async () => {
  const { page } = listing(40, (row) => row % 20 === 0);
  const first = await page(1);
  expect(first.items).toEqual([40]);
  expect(await page(1, first.next_page_token)).toEqual({ items: [20], next_page_token: "" });
});

test("a page that finds nothing in fifty parts ends there, and the next one continues", async () => {
  const { page, asked } = listing(1_000, (row) => row === 1 || row === 998);
  const first = await page(2);
  expect([first.items, asked.length]).toEqual([[998], 50]);
  const second = await page(2, first.next_page_token);
  expect([second.items, asked.length]).toEqual([[], 100]);
  expect(await page(2, second.next_page_token)).toEqual({ items: [1], next_page_token: "" });
});

test("a page has as many drops of the longest text as fit a message", () => {
  expect(textPages({ maxBodyCharacters: 5_000 })).toEqual({ default: 20, max: 100 });
  expect(textPages({ maxBodyCharacters: 100_000 })).toEqual({ default: 10, max: 10 });
});
