import type { FanoutCompleted } from "../contracts/notifications.js";
import type { Change } from "./apply.js";
import type { FanoutSize } from "./ports.js";

/** What is said of a fan-out whose last write has landed just now. */
export function completedOf(change: Change, counts: FanoutSize): FanoutCompleted {
  const landed = Date.now();
  return {
    event: change.event,
    drop_id: change.drop_id,
    user_id: change.user_id,
    recipients: counts.recipients,
    chunks: counts.chunks,
    created_at: change.created_at,
    admitted_at: change.admitted_at,
    landed_at: landed,
    // A drop from the past (imported, remote) has a lag only since it was admitted.
    lag_ms: Math.max(0, landed - Math.max(change.created_at, change.admitted_at)),
  };
}
