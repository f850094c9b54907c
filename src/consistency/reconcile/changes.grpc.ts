import { parseEvent, type TimelineEvent } from "../../contracts/events.js";
import { MAX_RECIPIENTS } from "../../contracts/untrusted.js";
import { type Drop, Visibility } from "../../gen/avion/posts.js";
import type { FollowChange } from "../../gen/avion/users.js";
import { codeOf, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { readPages } from "../../kernel/paging.js";
import { isUnimplemented, type Upstreams } from "../../platform/grpc/upstreams.js";
import type { ReadChanges, Window } from "./ports.js";

const A_PAGE = 500;

const VISIBILITY: Partial<Record<Visibility, string>> = {
  [Visibility.PUBLIC]: "public",
  [Visibility.UNLISTED]: "unlisted",
  [Visibility.FOLLOWERS]: "followers",
  [Visibility.DIRECT]: "direct",
};

/** Reads changes from both upstreams. One that lacks the method is left out: it works without reconciliation. */
export function createReadChanges(upstreams: Upstreams, log: Logger, lacking: (method: string) => void): ReadChanges {
  const told = new Set<string>();
  const unlessLacking = async function* (name: string, pages: AsyncIterable<TimelineEvent>) {
    try {
      yield* pages;
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      if (!told.has(name)) lacking(name);
      told.add(name);
    }
  };
  return async function* (window) {
    yield* unlessLacking("ListDrops", drops(upstreams, window, log));
    yield* unlessLacking("ListFollowChanges", edges(upstreams, window, log));
  };
}

async function* drops(upstreams: Upstreams, window: Window, log: Logger): AsyncGenerator<TimelineEvent> {
  const read = (page_token: string) => upstreams.changedDrops({ ...window, page_size: A_PAGE, page_token });
  for await (const page of readPages(read))
    for (const drop of page.drops) yield* understood(() => eventOfDrop(drop, window.until), log);
}

async function* edges(upstreams: Upstreams, window: Window, log: Logger): AsyncGenerator<TimelineEvent> {
  const read = (page_token: string) => upstreams.changedEdges({ ...window, page_size: A_PAGE, page_token });
  for await (const page of readPages(read))
    for (const edge of page.changes) yield* understood(() => eventOfEdge(edge, window.until), log);
}

/** What an upstream says is held to the same rules as what a channel says. */
function* understood(read: () => TimelineEvent, log: Logger): Generator<TimelineEvent> {
  try {
    yield read();
  } catch (error) {
    if (codeOf(error) !== "invalid") throw error;
    log.error({ error: oneLine(error) }, "an upstream told of a change that breaks the contract; it is left out");
  }
}

const encoded = (payload: object): Buffer => Buffer.from(JSON.stringify(payload));

function eventOfDrop(drop: Drop, now: number): TimelineEvent {
  const { drop_id, user_id, created_at, recipients } = drop;
  if (drop.deleted) return parseEvent("drop_deleted", encoded({ drop_id, ...(user_id && { user_id }) }), now);
  const visibility = VISIBILITY[drop.visibility];
  // One too many is refused as any number of them would be.
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
