import type { TimelineEvent } from "../contracts/events.js";
import type { Affected } from "../contracts/timelines.js";

/** The event of the log waits for a single user. It was noted when it went back to the queue. */
export interface WaitingEvent {
  readonly consumer: string;
  readonly seq: number;
  /** When it was noted, ms since the epoch. */
  readonly at: number;
  /** Timelines may have this drop, or lack it, until the event is applied. */
  readonly drop?: string | undefined;
  readonly affected?: Affected | undefined;
}

/** Returns undefined where no page lacks anything: deleted drops are hidden, and local and global are written first. */
export function affectedBy({ name, payload }: TimelineEvent): Affected | undefined {
  if (name === "user_followed" || name === "user_unfollowed") return { kind: "reader", user: payload.follower_id };
  if (name === "drop_deleted" || payload.user_id === undefined) return undefined;
  return { kind: "author", user: payload.user_id };
}
