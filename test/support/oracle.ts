import { expect } from "@jest/globals";
import type { Redis } from "ioredis";
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
};

/** The timelines of a drop, computed without the service's code. */
export type Expected = {
  readonly local: readonly Entry[];
  readonly global: readonly Entry[];
  home(user: string): readonly Entry[];
};

/**
 * The drops that timelines must hold after these events, whatever their order and however often each came: the smaller
 * time of an id wins, what was deleted once is dead, and of a pair's follows and unfollows the newest version counts.
 */
export function expectedAfter(history: readonly TimelineEvent[]): Expected {
  const dead = new Set(history.flatMap((event) => (event.channel === "drop_deleted" ? [event.payload.drop_id] : [])));
  const alive = history.flatMap(publication).filter(({ drop_id }) => !dead.has(drop_id));
  const edges = newestEdges(history);
  const follows = (follower: string, author: string): boolean => edges.get(pair(follower, author))?.following ?? false;
  return {
    local: ranked(alive.filter(({ remote, visibility }) => !remote && visibility === "public")),
    global: ranked(alive.filter(({ visibility }) => visibility === "public")),
    home: (user) => ranked(alive.filter((drop) => reaches(user, drop, follows))),
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
  if (event.channel === "drop_created") {
    const { user_id, recipients = [], created_at, ...rest } = event.payload;
    return [{ ...rest, author: user_id, remote: false, recipients, created_at: milliseconds(created_at) }];
  }
  if (event.channel === "ap_drop_received") {
    const { user_id, visibility = "public", recipients = [], created_at, drop_id } = event.payload;
    const seen = { visibility, recipients, created_at: milliseconds(created_at) };
    return [{ ...seen, drop_id, author: user_id, remote: true }];
  }
  return [];
}

function reaches(user: string, drop: Publication, follows: (follower: string, author: string) => boolean): boolean {
  if (drop.author === undefined) return false;
  if (drop.author === user) return !drop.remote;
  if (!follows(user, drop.author)) return false;
  return drop.visibility !== "direct" || drop.recipients.includes(user);
}

function ranked(publications: readonly Publication[]): Entry[] {
  const scores = new Map<string, number>();
  for (const { drop_id, created_at } of publications) {
    scores.set(drop_id, Math.min(created_at, scores.get(drop_id) ?? Number.POSITIVE_INFINITY));
  }
  const drops = [...scores].map(([drop_id, created_at]) => ({ drop_id, created_at }));
  return drops.sort(newestFirst).map(({ drop_id, created_at }) => [drop_id, created_at]);
}

function newestEdges(history: readonly TimelineEvent[]): Map<string, { version: number; following: boolean }> {
  const edges = new Map<string, { version: number; following: boolean }>();
  for (const event of history) {
    if (event.channel !== "user_followed" && event.channel !== "user_unfollowed") continue;
    const { follower_id, following_id, version } = event.payload;
    const known = edges.get(pair(follower_id, following_id));
    if (known !== undefined && known.version >= version) continue;
    edges.set(pair(follower_id, following_id), { version, following: event.channel === "user_followed" });
  }
  return edges;
}

function pair(follower: string, author: string): string {
  return JSON.stringify([follower, author]);
}

function milliseconds(created_at: number | string): number {
  return typeof created_at === "number" ? created_at : Date.parse(created_at);
}
