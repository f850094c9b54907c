import { randomInt } from "node:crypto";
import { parseEvent, type TimelineEvent } from "../contracts/events.js";
import { type KnownVisibility, VISIBILITY_NAMES } from "../contracts/timelines.js";
import { MAX_RECIPIENTS } from "../contracts/untrusted.js";
import { type Drop, Visibility } from "../gen/avion/posts.js";
import type { FollowChange } from "../gen/avion/users.js";
import { codeOf, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { readPages } from "../kernel/paging.js";
import { isUnimplemented, type Upstreams } from "../platform/grpc/upstreams.js";
import type { PublicationDeps } from "./audit/publications.js";
import type { ReadRetentionStart } from "./fences/fences.js";
import type { ReadChanges, TimeRange } from "./reconcile/reconcile.js";

const CHANGES_A_PAGE = 500;
const FOLLOWERS = 10;
const MOST_PAGES = 5;
/** An author has few drops of one millisecond. */
const DROPS = 20;

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
export function createReadChanges(
  upstreams: () => Upstreams,
  log: Logger,
  lacking: (method: string) => void,
): ReadChanges {
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
    yield* unlessLacking("ListDrops", drops(upstreams(), range, log));
    yield* unlessLacking("ListFollowChanges", edges(upstreams(), range, log));
  };
}

/** True where the posts service lists a change since then (ms since the epoch); one without ListDrops lists none. */
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

async function* drops(upstreams: Upstreams, range: TimeRange, log: Logger): AsyncGenerator<TimelineEvent> {
  const read = (page_token: string) => upstreams.changedDrops({ ...range, page_size: CHANGES_A_PAGE, page_token });
  for await (const page of readPages(read))
    for (const drop of page.drops) yield* unlessInvalid(() => eventOfDrop(drop, range.until), log);
}

async function* edges(upstreams: Upstreams, range: TimeRange, log: Logger): AsyncGenerator<TimelineEvent> {
  const read = (page_token: string) => upstreams.changedEdges({ ...range, page_size: CHANGES_A_PAGE, page_token });
  for await (const page of readPages(read))
    for (const edge of page.changes) yield* unlessInvalid(() => eventOfEdge(edge, range.until), log);
}

/** Answers of an upstream follow the same rules as messages of a channel. */
function* unlessInvalid(read: () => TimelineEvent, log: Logger): Generator<TimelineEvent> {
  try {
    yield read();
  } catch (error) {
    if (codeOf(error) !== "invalid") throw error;
    log.error({ error: oneLine(error) }, "an upstream listed a change that breaks the contract; it is skipped");
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
      const request = { user_id: author, limit: DROPS, max_id: "", before: createdAt + 1 };
      return (await upstreams().dropsByUser(request)).find(({ drop_id, deleted }) => drop_id === drop && !deleted);
    },
  };
}

function sampleOf(ids: readonly string[], count: number): string[] {
  const left = [...ids];
  const draw = (): string[] => left.splice(randomInt(left.length), 1);
  return Array.from({ length: Math.min(count, left.length) }, draw).flat();
}
