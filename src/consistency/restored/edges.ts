import type { TimelineEvent } from "../../contracts/events.js";
import { CLOCK_SKEW_MS, LOG_AGE_MS } from "../../contracts/times.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { HOUR } from "../../kernel/time.js";
import type { EdgeChange } from "../../records/fences.js";
import { ADMISSION_LAG_MS, type TimeRange } from "../reconcile/reconcile.js";
import type { ReadLogged } from "./phantoms.js";

/** Lists the edges that changed in a range, each as it is now; undefined where the upstream lists none. */
export type ListEdges = (range: TimeRange) => Promise<readonly EdgeChange[] | undefined>;

/** Asks the upstream whether the follow exists now. */
export type Follows = (follower: string, following: string) => Promise<boolean>;

interface LostEdgeDeps {
  readonly readGraph: ReadLogged;
  /** The fences may know changes of edges that the log has lost. */
  readonly readFenced: () => AsyncIterable<EdgeChange>;
  readonly listEdges: ListEdges;
  readonly follows: Follows;
}

/** The log or the fences have a newer version of this follow edge than the upstream. */
export interface LostEdge {
  /** The upstream returns the edge like this; version 0 stands for none. */
  readonly upstream: EdgeChange;
  /** These messages of the log hold newer versions. */
  readonly seqs: readonly number[];
}

interface LoggedEdge {
  readonly newest: EdgeChange;
  readonly messages: readonly { readonly seq: number; readonly version: number }[];
}

const ASKED_AT_ONCE = 8;

/** Compares the newest version of each edge, of the log before `until` (ms since the epoch) and of the fences, with the upstream. */
export async function findLostEdges(deps: LostEdgeDeps, until: number): Promise<readonly LostEdge[]> {
  const range = { since: until - LOG_AGE_MS - HOUR, until };
  const logged = await readLogged(deps, range);
  const changes = await deps.listEdges({
    since: range.since - ADMISSION_LAG_MS - CLOCK_SKEW_MS,
    until: until + CLOCK_SKEW_MS,
  });
  const listed = new Map(changes?.map((change) => [keyOf(change), change]));
  const newer = [...logged].filter(([key, { newest }]) => (listed.get(key)?.version ?? -1) < newest.version);
  const found = await mapLimited(newer, ASKED_AT_ONCE, async ([key, { newest, messages }]) => {
    const { follower, following } = newest;
    const follows = await deps.follows(follower, following);
    // An upstream that lists no changes does not show which versions it has lost.
    if (!changes && follows === newest.follows) return [];
    const version = listed.get(key)?.version ?? 0;
    const seqs = messages.flatMap((message) => (message.version > version ? message.seq : []));
    return [{ upstream: { follower, following, follows, version }, seqs }];
  });
  return found.flat();
}

async function readLogged(
  { readGraph, readFenced }: LostEdgeDeps,
  range: TimeRange,
): Promise<ReadonlyMap<string, LoggedEdge>> {
  const logged = new Map<string, LoggedEdge>();
  const note = (change: EdgeChange, messages: LoggedEdge["messages"]): void => {
    const before = logged.get(keyOf(change));
    const newest = before && before.newest.version > change.version ? before.newest : change;
    logged.set(keyOf(change), { newest, messages: [...(before?.messages ?? []), ...messages] });
  };
  for await (const { event, seq } of readGraph(range)) {
    const change = edgeIn(event);
    if (change) note(change, [{ seq, version: change.version }]);
  }
  for await (const change of readFenced()) note(change, []);
  return logged;
}

const keyOf = ({ follower, following }: EdgeChange): string => JSON.stringify([follower, following]);

export function edgeChangeOf({ name, payload }: TimelineEvent): EdgeChange | undefined {
  if (name !== "user_followed" && name !== "user_unfollowed") return undefined;
  const { follower_id: follower, following_id: following, version } = payload;
  return { follower, following, version, follows: name === "user_followed" };
}

/** Returns undefined also for users who follow themselves: no list contains them. */
export function edgeIn(event: TimelineEvent): EdgeChange | undefined {
  const change = edgeChangeOf(event);
  return change && change.follower !== change.following ? change : undefined;
}
