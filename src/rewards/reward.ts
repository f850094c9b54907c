import { type AnalysisCompleted, type UserTier, type XpEarned, xpMessageId } from "../contracts/analysis.js";
import type { AnalysisNotification } from "../contracts/stream-events.js";

/** An analysis earns so much XP, before the multiplier. */
const BASE = 10;
const MULTIPLIERS: Readonly<Record<UserTier, number>> = { DRIFT: 1, LIFT: 1.5, JET: 2, ORBIT: 3 };

/** The ledger keeps awards in this form. Times are in the format of RFC 3339. */
export interface Award extends XpEarned {
  /** The total is the user's with this award. */
  readonly total: number;
  /** This is the sequence in TIMELINE_EVENTS of the message that it rewards. */
  readonly event_seq: number;
}

/** Amounts have at most two decimals. */
export function awardFor(completed: AnalysisCompleted, now: number): XpEarned {
  const multiplier = MULTIPLIERS[completed.tier];
  return {
    event_id: completed.event_id,
    user_id: completed.user_id,
    amount: Math.round(BASE * multiplier * 100) / 100,
    multiplier,
    reason: "timeline_analysis",
    earned_at: new Date(now).toISOString(),
  };
}

/** An award is announced by an event and a notification, each with its message id. */
export function announcementsOf({ total, event_seq: _, ...event }: Award) {
  const { event_id, amount } = event;
  const id = xpMessageId(event_id);
  const notification: AnalysisNotification = { event: "xp_earned", event_id, amount, total };
  return { event, id, notification, notificationId: `notify:${id}` };
}
