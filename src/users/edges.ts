import { z } from "zod";
import { messageId, parseJson, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import { understood, userId } from "../contracts/untrusted.js";
import type { Handler } from "../delivery/handler.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { encodeId, spread } from "../kernel/ids.js";
import { createBatch } from "../kernel/sharing.js";
import { SECOND } from "../kernel/time.js";
import { traceHeaders } from "../telemetry/spans.js";
import { observeUsers } from "./observe.js";

const storedUserId = userId.refine((id) => !id.includes("\0"), { message: "must not contain NUL" });

const pair = z.object({ follower_id: storedUserId, following_id: storedUserId });
const edge = pair.extend({
  version: z.number().int().nonnegative(),
  following: z.boolean(),
  /** The time of the follow or unfollow, ms since the epoch. */
  changed_at: z.number().int().nonnegative().optional(),
});

export type Pair = Readonly<z.infer<typeof pair>>;

export type TracedEdge = Readonly<z.infer<typeof edge>> & {
  readonly traceparent?: string | undefined;
};

export const parsePair = (body: Uint8Array): Pair => understood(pair, parseJson(body));

export const parseEdge = (body: Uint8Array): z.infer<typeof edge> => understood(edge, parseJson(body));

/** The key of a pair's events, which are published in their order. */
export const pairKey = ({ follower_id, following_id }: Pair): string =>
  `${encodeId(follower_id)}:${encodeId(following_id)}`;

/** The event for the timeline roles, once both lists contain the edge. */
export function graphEvent({ follower_id, following_id, version, following }: TracedEdge) {
  const payload = { follower_id, following_id, version };
  const event: TimelineEvent = { name: following ? "user_followed" : "user_unfollowed", payload };
  return { subject: SUBJECT_OF[event.name], messageId: messageId(event), body: JSON.stringify(payload) };
}

interface ApplyDeps {
  /** Resolves to the number of changed edges; to undefined if a row stays locked for `lockMs`. */
  readonly apply: (edges: readonly TracedEdge[], lockMs?: number) => Promise<number | undefined>;
  readonly wakeRelay: () => void;
}

interface EdgeBatching {
  readonly name: string;
  readonly batch: number;
  /** Maximum number of batches at a time. All edges of one followed user go into the same batch. */
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
export function createApplyEdges({ apply, wakeRelay }: ApplyDeps, lane: EdgeBatching): Handler {
  const applied = async (edges: readonly TracedEdge[], lockMs?: number): Promise<boolean> => {
    const changed = await apply(edges, lockMs);
    if (changed === undefined) return false;
    observeUsers.applied(lane.name, edges.length, changed);
    if (changed > 0) wakeRelay();
    return true;
  };
  const run = async (edges: readonly TracedEdge[]): Promise<void> => {
    if (await applied(edges, lane.maxLockWaitMs)) return;
    const users = [...grouped(edges, ({ following_id }) => following_id).values()];
    const all = await mapLimited(users, USERS_AT_ONCE, (edgesOfUser) => applied(edgesOfUser));
    if (!all.every(Boolean)) throw new AppError("unavailable", "the followers of a user stay locked");
  };
  const batches = Array.from({ length: lane.atOnce }, () => createBatch(lane.batch, run, lane.maxLockWaitMs));
  return async ({ body }) => {
    const edge = parseEdge(body);
    const batch = batches[spread(edge.following_id) % batches.length] as (typeof batches)[number];
    await batch({ ...edge, traceparent: traceHeaders()["traceparent"] });
    if (edge.changed_at !== undefined) observeUsers.listed(lane.name, edge.changed_at);
  };
}
