import { World } from "../../support/world.js";

/** Audience of the n-th author of small drops: 10 to 100 followers. */
const FEWEST = 10;
const MOST = 100;
export const AUTHORS = 100;
/** The followers of small authors, who are also the readers; their homes are full. */
const USERS = 2_000;
const APART = 7;

export const STAR = "star";
export const authorOf = (n: number): string => `author-${n % AUTHORS}`;
export const userOf = (n: number): string => `user-${n % USERS}`;
export const users = (): string[] => Array.from({ length: USERS }, (_, n) => userOf(n));

export function followersOf(author: number): string[] {
  const count = FEWEST + ((author * APART) % (MOST - FEWEST + 1));
  return Array.from({ length: count }, (_, n) => userOf(author * APART + n));
}

export const fanOf = (n: number): string => `fan-${String(n).padStart(7, "0")}`;

/** The edges of a million followers would take a gigabyte. */
export class StarWorld extends World {
  readonly #fans: string[];

  constructor(fans: number) {
    super();
    this.#fans = Array.from({ length: fans }, (_, n) => fanOf(n));
    for (let author = 0; author < AUTHORS; author++)
      for (const follower of followersOf(author)) this.follow(follower, authorOf(author));
  }

  override followersOf(user: string): string[] {
    return user === STAR ? this.#fans : super.followersOf(user);
  }
}
