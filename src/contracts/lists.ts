import type { Limit } from "../kernel/variables.js";

/** Maximum number of lists of a user, and of members of a list. */
export const [MAX_LISTS, MAX_MEMBERS] = [50, 500];

/** Number of members whom a user may add for each user whom they may follow: with the default a list is filled at once. */
const MEMBERS_A_FOLLOW = 10;
/** Redis stores one timestamp for each. */
const MOST_COUNTED = 10_000;

/** Returns the limit of new members of lists, which follows from that of follows. */
export const membersLimit = (follows: Limit | undefined): Limit | undefined =>
  follows && { ...follows, most: Math.min(MOST_COUNTED, MEMBERS_A_FOLLOW * follows.most) };

const READER = "list:";
const LIST_READER = /^list:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/**
 * Returns the name under which a list follows its members, in lists of followers and in events of edges. Users are not
 * named like this.
 */
export const listReader = (list: string): string => READER + list;

/** Returns the list whose reader has this name; undefined for a user. */
export const listOfReader = (reader: string): string | undefined =>
  // Most are users: the expression costs more than a look at the first letters.
  reader.startsWith(READER) && LIST_READER.test(reader) ? reader.slice(READER.length) : undefined;

/** Returns true for the name of a list's reader. */
export const isListReader = (reader: string): boolean => listOfReader(reader) !== undefined;
