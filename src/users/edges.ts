import { z } from "zod";
import { messageId, parseJson, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import { understood } from "../contracts/untrusted.js";
import { encodeId } from "../kernel/ids.js";
import { userIdFault } from "./input.js";

export interface Pair {
  readonly follower: string;
  readonly following: string;
}

export interface Edge extends Pair {
  /** Monotonic per pair. */
  readonly version: number;
  readonly active: boolean;
}

/** The key of a pair's events, which are published in their order. */
export const pairKey = ({ follower, following }: Pair): string => `${encodeId(follower)}:${encodeId(following)}`;

const userId = z.string().superRefine((value, context) => {
  const message = userIdFault(value);
  if (message !== undefined) context.addIssue({ code: "custom", message });
});

const pair = { follower_id: userId, following_id: userId, version: z.number().int().nonnegative() };
const edge = z.object({ ...pair, following: z.boolean(), changed_at: z.number().optional() });
const graph = z.object(pair);

/**
 * Parses a message of the stream EDGES; `acceptedAt` is when the follower was answered, ms since the epoch by the
 * database's clock.
 *
 * @throws AppError `invalid`
 */
export function parseEdge(body: Uint8Array): Edge & { readonly acceptedAt: number | undefined } {
  const { follower_id, following_id, version, following, changed_at } = understood(edge, parseJson(body));
  return { follower: follower_id, following: following_id, version, active: following, acceptedAt: changed_at };
}

/** @throws AppError `invalid` */
export function parseGraphEvent(body: Uint8Array): Pair {
  const { follower_id, following_id } = understood(graph, parseJson(body));
  return { follower: follower_id, following: following_id };
}

/** The event for the timeline roles, once both lists contain the edge. */
export function graphEvent({ follower, following, version, active }: Edge): {
  readonly subject: string;
  readonly messageId: string;
  readonly body: string;
} {
  const event: TimelineEvent = {
    name: active ? "user_followed" : "user_unfollowed",
    payload: { follower_id: follower, following_id: following, version },
  };
  return { subject: SUBJECT_OF[event.name], messageId: messageId(event), body: JSON.stringify(event.payload) };
}
