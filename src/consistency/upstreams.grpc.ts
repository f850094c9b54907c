import { randomInt } from "node:crypto";
import { parseEvent, type TimelineEvent } from "../contracts/events.js";
import { date } from "../contracts/payloads.js";
import type { HeldDrop } from "../contracts/timelines.js";
import { type DropPage, type KnownVisibility, type TimelineEntry, VISIBILITY_NAMES } from "../contracts/timelines.js";
import { MAX_RECIPIENTS } from "../contracts/untrusted.js";
import { type Drop, Visibility } from "../gen/avion/posts.js";
import { type FollowChange, type RelationChange, RelationKind, type StandingEntry } from "../gen/avion/users.js";
import { codeOf, invalid } from "../kernel/errors.js";
import { readPages } from "../kernel/paging.js";
import { MINUTE } from "../kernel/time.js";
import { type EdgeChange, edgesIn, standingChangeOf } from "../state/index.js";
import { Busy } from "../upstreams/faults.js";
import { follows } from "../upstreams/follows.js";
import { isNotFound, isOfUpstream, isUnimplemented, type Upstreams } from "../upstreams/upstreams.grpc.js";
import type { TimeRange } from "./reconcile/reconcile.js";

/** Failures that a recovery waits for, or sets the events aside of. */
export const WAITING = {
  isUpstreamAway: (error: unknown): boolean => codeOf(error) === "unavailable" && isOfUpstream(error),
  isBusy: (error: unknown): boolean => error instanceof Busy,
};

const CHANGES_A_PAGE = 500;
const DROPS_A_PAGE = 100;
/** Maximum difference between the time of a drop in an event and in the upstream, which may round it. */
const ROUNDED_MS = MINUTE;
const SAMPLED_FOLLOWERS = 10;
const MOST_SAMPLED_PAGES = 5;

/** Questions of this component to the users and posts services. */
export class UpstreamView {
  readonly #lacked = new Set<string>();

  constructor(private readonly upstreams: Upstreams) {}

  /** Resolves to the time down to which drops are kept, in ms since the epoch; to undefined without GetRetention. */
  readonly readRetentionStart = async (): Promise<number | undefined> =>
    (await unlessLacking(() => this.upstreams.retention()))?.kept_since;

  /** Yields the changes of a range. `lacking` is called once for each method that an upstream does not have. */
  readonly readChanges = (range: TimeRange, lacking: (method: string) => void): AsyncIterable<TimelineEvent> =>
    changesOf(this.upstreams, range, (method) => {
      if (!this.#lacked.has(method)) lacking(method);
      this.#lacked.add(method);
    });

  /** Resolves to true if the posts service lists a change since a time, in ms since the epoch. */
  readonly listsDrops = async (since: number): Promise<boolean> => {
    const first = { since, until: 0, page_size: 1, page_token: "" };
    const page = await unlessLacking(() => this.upstreams.changedDrops(first));
    return page !== undefined && page.drops.length > 0;
  };

  /** Resolves to false if the upstreams have no drop, follow, follower or profile of a user. */
  readonly isKnown = async (user: string): Promise<boolean> => {
    const { dropsByUser, following, followers, profile } = this.upstreams;
    const firstOnly = { user, size: 1, token: "" };
    return (
      (await dropsByUser({ author: user, below: undefined, limit: 1 })).drops.length > 0 ||
      (await following(firstOnly)).ids.length > 0 ||
      (await followers(firstOnly)).ids.length > 0 ||
      (await profile(user).then(() => true, falseIfNone))
    );
  };

  /** @throws AppError if the author's drops cannot be read */
  readonly findDrop = async ({ drop, author = "", createdAt }: HeldDrop): Promise<Drop | undefined> => {
    let below: TimelineEntry | undefined = { score: createdAt + ROUNDED_MS, drop: "" };
    while (below && below.score >= createdAt - ROUNDED_MS) {
      const page: DropPage = await this.upstreams.dropsByUser({ author, below, limit: DROPS_A_PAGE });
      const listed = page.drops.find(({ drop_id, deleted }) => drop_id === drop && !deleted);
      if (listed) return listed;
      below = page.next;
    }
    return undefined;
  };

  /**
   * Resolves to this server's own drops that changed in a range, false for deleted ones; to undefined without
   * ListDrops, or if there are more than `most`.
   */
  readonly listDropIds = (
    range: TimeRange,
    most = Number.POSITIVE_INFINITY,
  ): Promise<ReadonlyMap<string, boolean> | undefined> =>
    unlessLacking(async () => {
      const listed = new Map<string, boolean>();
      for await (const page of dropPages(this.upstreams, range)) {
        for (const { drop_id, deleted } of page.drops) listed.set(drop_id, !deleted);
        if (listed.size > most) return undefined;
      }
      return listed;
    });

  /**
   * Resolves to the edges that changed in a range, each with its current state; to undefined without ListFollowChanges.
   */
  readonly listEdges = (range: TimeRange): Promise<readonly EdgeChange[] | undefined> =>
    unlessLacking(async () => {
      const listed: EdgeChange[] = [];
      for await (const event of changedEdges(this.upstreams, range)) listed.push(...edgesIn(event));
      return listed;
    });

  readonly follows = (follower: string, following: string): Promise<boolean> =>
    follows(this.upstreams, follower, following);

  /** Resolves to random followers, out of a list of about this number of pages. */
  readonly sampleFollowers = async (author: string, pages: number, size: number): Promise<readonly string[]> => {
    const ask = (token: string) => this.upstreams.followers({ user: author, size, token });
    let page = await ask("");
    for (let skip = randomInt(Math.min(Math.max(pages, 1), MOST_SAMPLED_PAGES)); skip > 0 && page.next !== ""; skip--)
      page = await ask(page.next);
    const remaining = [...page.ids];
    const draw = (): string[] => remaining.splice(randomInt(remaining.length), 1);
    return Array.from({ length: Math.min(SAMPLED_FOLLOWERS, remaining.length) }, draw).flat();
  };
}

/** Resolves to undefined if the upstream lacks the method. */
async function unlessLacking<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (isUnimplemented(error)) return undefined;
    throw error;
  }
}

function falseIfNone(error: unknown): boolean {
  if (isNotFound(error) || isUnimplemented(error)) return false;
  throw error;
}

const LISTS = [
  ["ListDrops", changedDrops],
  ["ListFollowChanges", changedEdges],
  ["ListRelationChanges", changedRelations],
  ["ListStandingChanges", changedStandings],
] as const;

async function* changesOf(
  upstreams: Upstreams,
  range: TimeRange,
  lacking: (method: string) => void,
): AsyncGenerator<TimelineEvent> {
  for (const [method, changes] of LISTS) {
    try {
      yield* changes(upstreams, range);
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      // An older users service hides nobody: none of its relations and standings can be lost.
      if (changes !== changedRelations && changes !== changedStandings) lacking(method);
    }
  }
}

const dropPages = (upstreams: Upstreams, range: TimeRange) =>
  readPages((page_token) => upstreams.changedDrops({ ...range, page_size: CHANGES_A_PAGE, page_token }));

async function* changedDrops(upstreams: Upstreams, range: TimeRange): AsyncGenerator<TimelineEvent> {
  for await (const page of dropPages(upstreams, range))
    for (const drop of page.drops)
      yield* unlessInvalid(
        () => eventOfDrop(drop, range.until),
        () => upstreams.leaveOut("ListDrops", drop.user_id),
      );
}

async function* changedEdges(upstreams: Upstreams, range: TimeRange): AsyncGenerator<TimelineEvent> {
  const read = (page_token: string) => upstreams.changedEdges({ ...range, page_size: CHANGES_A_PAGE, page_token });
  for await (const page of readPages(read))
    for (const edge of page.changes)
      yield* unlessInvalid(
        () => eventOfEdge(edge, range.until),
        () => upstreams.leaveOut("ListFollowChanges", edge.follower_id),
      );
}

async function* changedRelations(upstreams: Upstreams, range: TimeRange): AsyncGenerator<TimelineEvent> {
  const read = (page_token: string) => upstreams.changedRelations({ ...range, page_size: CHANGES_A_PAGE, page_token });
  for await (const page of readPages(read))
    for (const change of page.changes)
      yield* unlessInvalid(
        () => eventOfRelation(change, range.until),
        () => upstreams.leaveOut("ListRelationChanges", change.user_id),
      );
}

async function* changedStandings(upstreams: Upstreams, range: TimeRange): AsyncGenerator<TimelineEvent> {
  const read = (page_token: string) => upstreams.changedStandings({ ...range, page_size: CHANGES_A_PAGE, page_token });
  for await (const page of readPages(read))
    for (const entry of page.entries)
      yield* unlessInvalid(
        () => eventOfStanding(entry, range.until),
        () => upstreams.leaveOut("ListStandingChanges", entry.user_id || entry.host),
      );
}

/** Parses an item of an upstream by the rules for messages of a channel. */
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
  const { drop_id, user_id, created_at, recipients, mentions } = drop;
  if (drop.deleted) return parseEvent("drop_deleted", encoded({ drop_id, ...(user_id && { user_id }) }), now);
  const visibility = VISIBILITY_NAMES[drop.visibility as KnownVisibility];
  const direct = drop.visibility === Visibility.DIRECT ? { recipients: recipients.slice(0, MAX_RECIPIENTS + 1) } : {};
  const { repost_of, repost_author, reply_to, reply_to_author } = drop;
  const named = Object.entries({ repost_of, repost_author, reply_to, reply_to_author }).filter(
    ([, name]) => name !== "",
  );
  const others = { ...Object.fromEntries(named), ...(mentions.length > 0 && { mentions }) };
  return parseEvent("drop_created", encoded({ drop_id, user_id, visibility, created_at, ...direct, ...others }), now);
}

const RELATION_EVENTS = {
  [RelationKind.BLOCK]: { true: "user_blocked", false: "user_unblocked" },
  [RelationKind.MUTE]: { true: "user_muted", false: "user_unmuted" },
} as const;

/** The client of gRPC rounds larger numbers. */
function refuseRounded(version: number): void {
  if (!Number.isSafeInteger(version)) throw invalid("version", "is beyond 2^53");
}

function eventOfRelation({ kind, active, changed_at: _, ...payload }: RelationChange, now: number): TimelineEvent {
  const names = RELATION_EVENTS[kind as keyof typeof RELATION_EVENTS];
  if (names === undefined) throw invalid("kind", "is unknown");
  refuseRounded(payload.version);
  return parseEvent(names[`${active}`], encoded(payload), now);
}

function eventOfStanding(entry: StandingEntry, now: number): TimelineEvent {
  const change = standingChangeOf(entry);
  if (change === undefined) throw invalid("standing", "is not understood");
  return parseEvent("standing_changed", encoded(change), now);
}

function eventOfEdge({ following, changed_at, ...edge }: FollowChange, now: number): TimelineEvent {
  refuseRounded(edge.version);
  const name = following ? "user_followed" : "user_unfollowed";
  // A time that cannot be read loses no follow.
  const created_at = date.optional().safeParse(changed_at || undefined).data;
  return parseEvent(name, encoded({ ...edge, created_at }), now);
}
