import { expect } from "@jest/globals";
import type { Redis } from "ioredis";
import { followsAfter, type Hides, hidesAfter, standingsAfter } from "./oracle-people.js";
import { type Once, onceIn, REPOST_WINDOW } from "./reposts-once.js";
import type { TimelineEvent, VisibilityName } from "./timeline-events.js";
import { type Entry, held, homeKey } from "./timeline-keys.js";
import { newestFirst } from "./world.js";

type Publication = {
  readonly drop_id: string;
  readonly created_at: number;
  readonly author: string | undefined;
  readonly remote: boolean;
  readonly visibility: VisibilityName;
  readonly recipients: readonly string[];
  readonly repost_of: string;
  readonly repost_author: string;
  readonly reply_to_author: string;
};

/** The timelines of a drop, computed without the service's code. */
export type Expected = {
  readonly local: readonly Entry[];
  readonly global: readonly Entry[];
  /** Holds the drops of suspended authors, which pages leave out. */
  home(user: string): readonly Entry[];
  /** Returns the pages of the home: each drop once among its reposts. */
  homePage(user: string): readonly Once[];
  /** Returns the pages of local and global for somebody who hides nobody. */
  readonly localPage: readonly string[];
  readonly globalPage: readonly string[];
};

/**
 * The drops that timelines must hold after these events at a time (ms since the epoch), whatever their order and however
 * often each came: the smaller time of an id wins, what was deleted once is dead, and the newest version counts of follows,
 * relations and standings.
 */
export function expectedAfter(history: readonly TimelineEvent[], at = Date.now()): Expected {
  const dead = new Set(history.flatMap((event) => (event.channel === "drop_deleted" ? [event.payload.drop_id] : [])));
  const alive = history.flatMap(publication).filter(({ drop_id }) => !dead.has(drop_id));
  const [follows, hides, standingOf] = [followsAfter(history), hidesAfter(history, at), standingsAfter(history, at)];
  const local = alive.filter((drop) => !drop.remote && isShared(drop));
  const global = alive.filter(isShared);
  const home = (user: string): Publication[] =>
    alive.filter((drop) => reaches(user, drop, follows) && !isHiddenFrom(user, drop, hides));
  const isOfSuspended = (drop: Publication): boolean =>
    [drop.author, drop.repost_author, answered(drop)].some((user) => user && standingOf(user) === "suspended");
  const isListed = (drop: Publication): boolean =>
    !isOfSuspended(drop) && !(drop.author && standingOf(drop.author) === "limited");
  return {
    local: ranked(local),
    global: ranked(global),
    home: (user) => ranked(home(user)),
    homePage: (user) => onceOf(home(user).filter((drop) => !isOfSuspended(drop))),
    localPage: idsOf(ranked(local.filter(isListed))),
    globalPage: idsOf(ranked(global.filter(isListed))),
  };
}

/**
 * Compares a home timeline with what it must hold, entry by entry, the floor aside. A deletion that does not name the
 * author cannot find every home; what it missed may stay in the key, since reads filter it.
 */
export async function expectHome(redis: Redis, user: string, history: readonly TimelineEvent[]): Promise<void> {
  const missable = missableDeletions(history);
  const { entries } = await held(redis, homeKey(user));
  const shown = entries.filter(([id]) => !missable.has(id));
  expect({ user, entries: shown }).toEqual({ user, entries: expectedAfter(history).home(user) });
}

/** Compares the two shared timelines and the homes of `users` with what they must hold. */
export async function expectTimelines(
  redis: Redis,
  users: readonly string[],
  history: readonly TimelineEvent[],
): Promise<void> {
  const expected = expectedAfter(history);
  expect({ local: (await held(redis, "timeline:local")).entries }).toEqual({ local: expected.local });
  expect({ global: (await held(redis, "timeline:global")).entries }).toEqual({ global: expected.global });
  for (const user of users) await expectHome(redis, user, history);
}

/** The ids alone, in the order of the timeline. */
export function idsOf(entries: readonly Entry[]): string[] {
  return entries.map(([id]) => id);
}

/** Drops whose every deletion names no author. */
export function missableDeletions(history: readonly TimelineEvent[]): Set<string> {
  const deletions = history.flatMap((event) => (event.channel === "drop_deleted" ? [event.payload] : []));
  const named = new Set(deletions.flatMap(({ drop_id, user_id }) => (user_id === undefined ? [] : [drop_id])));
  return new Set(deletions.flatMap(({ drop_id }) => (named.has(drop_id) ? [] : [drop_id])));
}

function publication(event: TimelineEvent): Publication[] {
  if (event.channel !== "drop_created" && event.channel !== "ap_drop_received") return [];
  const usual = {
    visibility: "public",
    recipients: [],
    repost_of: "",
    repost_author: "",
    reply_to_author: "",
  } as const;
  const { user_id, created_at, ...rest } = event.payload;
  const remote = event.channel === "ap_drop_received";
  return [{ ...usual, ...rest, author: user_id, remote, created_at: milliseconds(created_at) }];
}

/** The author of the parent of a reply to somebody else. A direct drop and one whose parent's author nobody knows are none. */
function answered({ author, visibility, repost_of, reply_to_author }: Publication): string | undefined {
  const isAnyDrop = visibility === "direct" || repost_of !== "" || ["", author].includes(reply_to_author);
  return isAnyDrop ? undefined : reply_to_author;
}

const isShared = (drop: Publication): boolean =>
  drop.visibility === "public" && drop.repost_of === "" && answered(drop) === undefined;

function reaches(user: string, drop: Publication, follows: (follower: string, author: string) => boolean): boolean {
  if (drop.author === undefined) return false;
  if (drop.author === user) return !drop.remote;
  if (!follows(user, drop.author)) return false;
  const parent = answered(drop);
  if (parent !== undefined && parent !== user && !follows(user, parent)) return false;
  return drop.visibility !== "direct" || drop.recipients.includes(user);
}

/** One's own drops and reposts are never hidden. */
function isHiddenFrom(user: string, drop: Publication, hides: Hides): boolean {
  if (drop.author === undefined || drop.author === user) return false;
  const isRepost = drop.repost_of !== "";
  const hidden = hides(user, drop.author);
  if (hidden === "all" || (isRepost && hidden === "reposts")) return true;
  return [isRepost ? drop.repost_author : "", answered(drop) ?? ""].some(
    (other) => other !== "" && hides(user, other) === "all",
  );
}

/** A drop that came with two times has the smaller one. */
function onceOf(drops: readonly Publication[]): Once[] {
  const byId = new Map(drops.map((drop) => [drop.drop_id, drop]));
  const entries = ranked(drops).map(([drop, score]) => {
    const { author = "", repost_of } = byId.get(drop) as Publication;
    return { drop, score, by: { author, ...(repost_of !== "" && { repostOf: repost_of }) } };
  });
  return onceIn(entries, REPOST_WINDOW);
}

function ranked(publications: readonly Publication[]): Entry[] {
  const scores = new Map<string, number>();
  for (const { drop_id, created_at } of publications) {
    scores.set(drop_id, Math.min(created_at, scores.get(drop_id) ?? Number.POSITIVE_INFINITY));
  }
  const drops = [...scores].map(([drop_id, created_at]) => ({ drop_id, created_at }));
  return drops.sort(newestFirst).map(({ drop_id, created_at }) => [drop_id, created_at]);
}

function milliseconds(created_at: number | string): number {
  return typeof created_at === "number" ? created_at : Date.parse(created_at);
}
