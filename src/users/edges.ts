import { z } from "zod";
import { messageId, parseJson, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import type { EventDraft } from "../contracts/outbox.js";
import { edgeSubject } from "../contracts/subjects.js";
import { understood, userId } from "../contracts/untrusted.js";
import type { Handler } from "../delivery/handler.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { encodeId, spread } from "../kernel/ids.js";
import { createBatch } from "../kernel/sharing.js";
import { SECOND } from "../kernel/time.js";
import type { ObserveUsers } from "./observe.js";

export interface Pair {
  readonly follower: string;
  readonly following: string;
}

interface Edge extends Pair {
  readonly version: number;
  readonly active: boolean;
}

/** The key of a pair's events, which are published in their order. */
export const pairKey = ({ follower, following }: Pair): string => `${encodeId(follower)}:${encodeId(following)}`;

const storedUserId = userId.refine((id) => !id.includes("\0"), { message: "must not contain NUL" });

const pair = z.object({ follower_id: storedUserId, following_id: storedUserId, version: z.number().int().nonnegative() });
const edge = pair.extend({ following: z.boolean(), changed_at: z.number().optional() });

/** `acceptedAt`: the time of the follow or unfollow, ms since the epoch. @throws AppError `invalid` */
export function parseEdge(body: Uint8Array): Edge & { readonly acceptedAt: number | undefined } {
  const { follower_id, following_id, version, following, changed_at } = understood(edge, parseJson(body));
  return { follower: follower_id, following: following_id, version, active: following, acceptedAt: changed_at };
}

/** Parses the event of a pair, of either outbox. @throws AppError `invalid` */
export function parsePair(body: Uint8Array): Pair {
  const { follower_id, following_id } = understood(pair, parseJson(body));
  return { follower: follower_id, following: following_id };
}

/** The statement that sets an edge adds its version to the message id, and writes the body. */
export const edgeChanged = (pair: Pair, traceparent: string | undefined): EventDraft => ({
  owner: encodeId(pair.following),
  key: pairKey(pair),
  subject: edgeSubject("calm", pair.following),
  messageId: `edge:${pairKey(pair)}`,
  body: "",
  traceparent,
});

export interface TracedEdge extends Edge {
  readonly traceparent?: string | undefined;
}

/** The event for the timeline roles, once both lists contain the edge. */
export function graphEvent({ follower, following, version, active, traceparent }: TracedEdge): EventDraft {
  const event: TimelineEvent = {
    name: active ? "user_followed" : "user_unfollowed",
    payload: { follower_id: follower, following_id: following, version },
  };
  return {
    owner: encodeId(following),
    key: pairKey({ follower, following }),
    subject: SUBJECT_OF[event.name],
    messageId: messageId(event),
    body: JSON.stringify(event.payload),
    traceparent,
  };
}

interface ApplyDeps {
  /** Resolves to the number of changed edges; undefined where a row stays locked for so long. */
  readonly apply: (edges: readonly TracedEdge[], lockMs?: number) => Promise<number | undefined>;
  readonly wakeRelay: () => void;
  readonly observe: Pick<ObserveUsers, "applied" | "listed">;
}

interface EdgeBatching {
  readonly name: string;
  readonly batch: number;
  /** So many batches run at once; all edges of one followed user go into the same. */
  readonly atOnce: number;
  /** A batch waits no longer for a row that another process has locked, and the next batch no longer for it. */
  readonly maxLockWaitMs: number;
}

const USERS_AT_ONCE = 8;

/** Small batches, several at once: an edge waits for few others. */
export const CALM_LANE: EdgeBatching = { name: "calm", batch: 250, atOnce: 4, maxLockWaitMs: SECOND / 4 };

/** One large batch after the other: very many followers of one user are one update of the count. */
export const HOT_LANE: EdgeBatching = { name: "hot", batch: 2_000, atOnce: 1, maxLockWaitMs: 5 * SECOND };

/** Handles the stream EDGES: applies edges to the follower lists. The newest version of a pair wins, in any order. */
export function createApplyEdges({ apply, wakeRelay, observe }: ApplyDeps, lane: EdgeBatching): Handler {
  const applied = async (edges: readonly TracedEdge[], lockMs?: number): Promise<boolean> => {
    const changed = await apply(edges, lockMs);
    if (changed === undefined) return false;
    observe.applied(lane.name, edges.length, changed);
    if (changed > 0) wakeRelay();
    return true;
  };
  const run = async (edges: readonly TracedEdge[]): Promise<void> => {
    if (await applied(edges, lane.maxLockWaitMs)) return;
    const users = [...grouped(edges, ({ following }) => following).values()];
    const all = await mapLimited(users, USERS_AT_ONCE, (own) => applied(own));
    if (!all.every(Boolean)) throw new AppError("unavailable", "the followers of a user stay locked");
  };
  const batches = Array.from({ length: lane.atOnce }, () => createBatch(lane.batch, run, lane.maxLockWaitMs));
  return async ({ body }) => {
    const { acceptedAt, ...edge } = parseEdge(body);
    const batch = batches[spread(edge.following) % batches.length] as (typeof batches)[number];
    await batch({ ...edge, traceparent: traceHeaders()["traceparent"] });
    if (acceptedAt !== undefined) observe.listed(lane.name, acceptedAt);
  };
}
