import { z } from "zod";
import { messageId, parseJson, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import { understood } from "../contracts/untrusted.js";
import { encodeId } from "../kernel/ids.js";
import { userIdFault } from "./input.js";
import type { AcceptedEdge, Edge, Pair } from "./ports.js";

/** The key of a pair's events: they are published in their order. */
export const pairKey = ({ follower, following }: Pair): string => `${encodeId(follower)}:${encodeId(following)}`;

const userId = z.string().superRefine((value, context) => {
  const message = userIdFault(value);
  if (message !== undefined) context.addIssue({ code: "custom", message });
});

const pair = { follower_id: userId, following_id: userId, version: z.number().int().nonnegative() };
const edge = z.object({ ...pair, following: z.boolean(), changed_at: z.number().optional() });
const graph = z.object(pair);

/** Understands a changed edge as the stream EDGES carries it. @throws AppError `invalid` */
export function parseEdge(body: Uint8Array): AcceptedEdge {
  const { follower_id, following_id, version, following, changed_at } = understood(edge, parseJson(body));
  return { follower: follower_id, following: following_id, version, active: following, acceptedAt: changed_at };
}

/** Understands whom an event for the timeline roles is about. @throws AppError `invalid` */
export function parseGraphEvent(body: Uint8Array): Pair {
  const { follower_id, following_id } = understood(graph, parseJson(body));
  return { follower: follower_id, following: following_id };
}

/** What the timeline roles are told once both lists show an edge. */
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
