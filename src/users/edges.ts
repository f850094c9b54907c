import { z } from "zod";
import { messageId, parseJson, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import { understood, userId } from "../contracts/untrusted.js";
import { encodeId } from "../kernel/ids.js";

export interface Pair {
  readonly follower: string;
  readonly following: string;
}

export interface Edge extends Pair {
  readonly version: number;
  readonly active: boolean;
}

/** The key of a pair's events, which are published in their order. */
export const pairKey = ({ follower, following }: Pair): string => `${encodeId(follower)}:${encodeId(following)}`;

const storedUserId = userId.refine((id) => !id.includes("\0"), { message: "must not contain NUL" });

const pair = { follower_id: storedUserId, following_id: storedUserId, version: z.number().int().nonnegative() };
const edge = z.object({ ...pair, following: z.boolean(), changed_at: z.number().optional() });
const graph = z.object(pair);

/** `acceptedAt`: the time of the follow or unfollow, ms since the epoch. @throws AppError `invalid` */
export function parseEdge(body: Uint8Array): Edge & { readonly acceptedAt: number | undefined } {
  const { follower_id, following_id, version, following, changed_at } = understood(edge, parseJson(body));
  return { follower: follower_id, following: following_id, version, active: following, acceptedAt: changed_at };
}

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
