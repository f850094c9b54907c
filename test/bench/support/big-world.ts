import type { Drop } from "../../../src/gen/avion/posts.js";
import { fanOf, STAR, StarWorld } from "./lanes-shared.js";

/** Of the readers whose pages are measured: how many big authors each follows. */
export const FOLLOWED = [0, 20, 200] as const;
export const READERS_EACH = 100;
const BIG_AUTHORS = Math.max(...FOLLOWED);
/** As in the simulation: a home gets a drop in 36 s, a big author writes ten a day. */
const [HOME_EVERY_MS, AUTHOR_EVERY_MS] = [36_000, 8_640_000];
const [HOME_ENTRIES, AUTHOR_ENTRIES] = [1_000, 200];

export const bigAuthor = (n: number): string => `big-${String(n).padStart(3, "0")}`;
export const bigAuthors = (count: number = BIG_AUTHORS): string[] =>
  Array.from({ length: count }, (_, n) => bigAuthor(n));
export const readerOf = (followed: number, n: number): string => `reader-${followed}-${n % READERS_EACH}`;

export interface Entry {
  readonly score: number;
  readonly drop: string;
}

const id = (owner: number, n: number): string =>
  `0197a7c8-${String(owner).padStart(4, "0")}-7000-8000-${String(n).padStart(12, "0")}`;

/** Newest first. All readers' homes hold the same. */
export const homeEntries = (newest: number): Entry[] =>
  Array.from({ length: HOME_ENTRIES }, (_, n) => ({ score: newest - HOME_EVERY_MS * n, drop: id(9_999, n) }));

export const authorEntries = (author: number, newest: number): Entry[] =>
  Array.from({ length: AUTHOR_ENTRIES }, (_, n) => {
    const score =
      newest - AUTHOR_EVERY_MS * n - (Math.round((AUTHOR_EVERY_MS * author * 89) / BIG_AUTHORS) % AUTHOR_EVERY_MS);
    return { score, drop: id(author, n) };
  });

/** Followers of one author, and readers who follow none, some and very many big authors. */
export class BigWorld extends StarWorld {
  override followingOf(user: string): string[] {
    if (user.startsWith(fanOf(0).slice(0, 4))) return [STAR];
    const followed = /^reader-(\d+)-/.exec(user)?.[1];
    return followed === undefined ? super.followingOf(user) : bigAuthors(Number(followed));
  }

  /** Big authors' timelines are given: nobody asks for their drops. */
  override dropsOf(author: string): Drop[] {
    if (author.startsWith(bigAuthor(0).slice(0, 4))) throw new Error(`${author} is read from the upstream`);
    return super.dropsOf(author);
  }
}
