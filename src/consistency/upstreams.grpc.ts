import { randomInt } from "node:crypto";
import { parseEvent, type TimelineEvent } from "../contracts/events.js";
import { type DropPage, type KnownVisibility, type TimelineEntry, VISIBILITY_NAMES } from "../contracts/timelines.js";
import { MAX_RECIPIENTS } from "../contracts/untrusted.js";
import { type Drop, Visibility } from "../gen/avion/posts.js";
import type { FollowChange } from "../gen/avion/users.js";
import { codeOf } from "../kernel/errors.js";
import { readPages } from "../kernel/paging.js";
import { MINUTE } from "../kernel/time.js";
import { isNotFound, isOfUpstream, isUnimplemented, type Upstreams } from "../platform/grpc/upstreams.js";
import { Busy } from "../platform/turns.js";
import type { EdgeChange } from "../records/fences.js";
import type { PublicationDeps } from "./audit/publications.js";
import type { ReadRetentionStart } from "./fences/fences.js";
import type { ReadChanges, TimeRange } from "./reconcile/reconcile.js";
import type { RecoveryDeps } from "./redis-loss/recovery.js";
import { edgeChangeOf, type Follows, type ListEdges } from "./restored/edges.js";
import type { KnowsDrop, ListDropIds } from "./restored/judge.js";

/** A recovery waits for these failures, or sets their events aside. */
export const WAITING: Pick<RecoveryDeps, "isUpstreamAway" | "isBusy"> = {
  isUpstreamAway: (error) => codeOf(error) === "unavailable" && isOfUpstream(error),
  isBusy: (error) => error instanceof Busy,
};

const CHANGES_A_PAGE = 500;
const FOLLOWERS = 10;
const MOST_PAGES = 5;
/** An author has few drops of one millisecond. */
const DROPS = 20;
const MOST_DROP_PAGES = 20;

export function createReadRetentionStart(upstreams: () => Upstreams): ReadRetentionStart {
  return async () => {
    try {
      return (await upstreams().retention()).kept_since;
    } catch (error) {
      if (isUnimplemented(error)) return undefined;
      throw error;
    }
  };
}

/** Skips an upstream that lacks the method, and calls `lacking` once for each such method. */
export function createReadChanges(upstreams: () => Upstreams, lacking: (method: string) => void): ReadChanges {
  const reported = new Set<string>();
  const unlessLacking = async function* (name: string, pages: AsyncIterable<TimelineEvent>) {
    try {
      yield* pages;
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      if (!reported.has(name)) lacking(name);
      reported.add(name);
    }
  };
  return async function* (range) {
    yield* unlessLacking("ListDrops", drops(upstreams(), range));
    yield* unlessLacking("ListFollowChanges", edges(upstreams(), range));
  };
}

/**
 * Resolves to true where the posts service lists a change since then (ms since the epoch); one without ListDrops lists
 * none.
 */
export function createListsDrops(upstreams: () => Upstreams): (since: number) => Promise<boolean> {
  return async (since) => {
    try {
      const page = await upstreams().changedDrops({ since, until: 0, page_size: 1, page_token: "" });
      return page.drops.length > 0;
    } catch (error) {
      if (isUnimplemented(error)) return false;
      throw error;
    }
  };
}

/** Resolves to false where the upstreams have no drop, follow, follower or profile of a user. */
export function createIsKnown(upstreams: () => Upstreams): (user: string) => Promise<boolean> {
  return async (user) => {
    const { dropsByUser, following, followers, profile } = upstreams();
    const one = { user, size: 1, token: "" };
    return (
      (await dropsByUser({ author: user, below: undefined, limit: 1 })).drops.length > 0 ||
      (await following(one)).ids.length > 0 ||
      (await followers(one)).ids.length > 0 ||
      (await profile(user).then(() => true, falseIfNone))
    );
  };
}

function falseIfNone(error: unknown): boolean {
  if (isNotFound(error) || isUnimplemented(error)) return false;
  throw error;
}

/** An upstream may round the time of a drop otherwise than the event that tells of it. */
const ROUNDED_MS = MINUTE;
const DROPS_A_LOOK = 100;

export function createKnowsDrop(upstreams: () => Upstreams): KnowsDrop {
  return async ({ drop, author = "", createdAt }) => {
    let below: TimelineEntry | undefined = { score: createdAt + ROUNDED_MS, drop: "" };
    while (below && below.score >= createdAt - ROUNDED_MS) {
      const page: DropPage = await upstreams().dropsByUser({ author, below, limit: DROPS_A_LOOK });
      if (page.drops.some(({ drop_id, deleted }) => drop_id === drop && !deleted)) return true;
      below = page.next;
    }
    return false;
  };
}

export function createListDropIds(upstreams: () => Upstreams): ListDropIds {
  return async (range, most = Number.POSITIVE_INFINITY) => {
    const listed = new Map<string, boolean>();
    const read = (page_token: string) => upstreams().changedDrops({ ...range, page_size: CHANGES_A_PAGE, page_token });
    try {
      for await (const page of readPages(read)) {
        for (const { drop_id, deleted } of page.drops) listed.set(drop_id, !deleted);
        if (listed.size > most) return undefined;
      }
    } catch (error) {
      if (isUnimplemented(error)) return undefined;
      throw error;
    }
    return listed;
  };
}

export function createListEdges(upstreams: () => Upstreams): ListEdges {
  return async (range) => {
    const listed: EdgeChange[] = [];
    try {
      for await (const event of edges(upstreams(), range)) listed.push(edgeChangeOf(event) as EdgeChange);
    } catch (error) {
      if (isUnimplemented(error)) return undefined;
      throw error;
    }
    return listed;
  };
}

const FOLLOWING_A_PAGE = 1_000;

export function createFollows(upstreams: () => Upstreams): Follows {
  return async (follower, following) => {
    try {
      const [follows] = await upstreams().isFollowing(follower, [following]);
      if (follows !== undefined) return follows;
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
    }
    const read = (token: string) => upstreams().following({ user: follower, size: FOLLOWING_A_PAGE, token });
    for await (const { ids } of readPages(read)) if (ids.includes(following)) return true;
    return false;
  };
}

async function* drops(upstreams: Upstreams, range: TimeRange): AsyncGenerator<TimelineEvent> {
  const read = (page_token: string) => upstreams.changedDrops({ ...range, page_size: CHANGES_A_PAGE, page_token });
  for await (const page of readPages(read))
    for (const drop of page.drops)
      yield* unlessInvalid(
        () => eventOfDrop(drop, range.until),
        () => upstreams.leaveOut("ListDrops", drop.user_id),
      );
}

async function* edges(upstreams: Upstreams, range: TimeRange): AsyncGenerator<TimelineEvent> {
  const read = (page_token: string) => upstreams.changedEdges({ ...range, page_size: CHANGES_A_PAGE, page_token });
  for await (const page of readPages(read))
    for (const edge of page.changes)
      yield* unlessInvalid(
        () => eventOfEdge(edge, range.until),
        () => upstreams.leaveOut("ListFollowChanges", edge.follower_id),
      );
}

/** Answers of an upstream follow the same rules as messages of a channel. */
function* unlessInvalid(read: () => TimelineEvent, leaveOut: () => void): Generator<TimelineEvent> {
  try {
    yield read();
  } catch (error) {
    if (codeOf(error) !== "invalid") throw error;
    leaveOut();
  }
}

const encoded = (payload: object): Buffer => Buffer.from(JSON.stringify(payload));

function eventOfDrop(drop: Drop, now: number): TimelineEvent {
  const { drop_id, user_id, created_at, recipients } = drop;
  if (drop.deleted) return parseEvent("drop_deleted", encoded({ drop_id, ...(user_id && { user_id }) }), now);
  const visibility = VISIBILITY_NAMES[drop.visibility as KnownVisibility];
  const direct = drop.visibility === Visibility.DIRECT ? { recipients: recipients.slice(0, MAX_RECIPIENTS + 1) } : {};
  return parseEvent("drop_created", encoded({ drop_id, user_id, visibility, created_at, ...direct }), now);
}

function eventOfEdge({ follower_id, following_id, version, following }: FollowChange, now: number): TimelineEvent {
  return parseEvent(
    following ? "user_followed" : "user_unfollowed",
    encoded({ follower_id, following_id, version }),
    now,
  );
}

export function createPublicationSources(
  upstreams: () => Upstreams,
  followersAPage: number,
): Pick<PublicationDeps, "sampleFollowers" | "findDrop"> {
  return {
    async sampleFollowers(author, pages) {
      const ask = (token: string) => upstreams().followers({ user: author, size: followersAPage, token });
      let page = await ask("");
      for (let skip = randomInt(Math.min(Math.max(pages, 1), MOST_PAGES)); skip > 0 && page.next !== ""; skip--)
        page = await ask(page.next);
      return sampleOf(page.ids, FOLLOWERS);
    },
    async findDrop(author, drop, createdAt) {
      let below: TimelineEntry | undefined = { score: createdAt + 1, drop: "" };
      for (let pages = 0; below && below.score >= createdAt && pages < MOST_DROP_PAGES; pages++) {
        const page: DropPage = await upstreams().dropsByUser({ author, below, limit: DROPS });
        const found = page.drops.find(({ drop_id, deleted }) => drop_id === drop && !deleted);
        if (found) return found;
        below = page.next;
      }
      return undefined;
    },
  };
}

function sampleOf(ids: readonly string[], count: number): string[] {
  const left = [...ids];
  const draw = (): string[] => left.splice(randomInt(left.length), 1);
  return Array.from({ length: Math.min(count, left.length) }, draw).flat();
}
