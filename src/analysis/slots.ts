import { isDid, requestIn } from "../contracts/analysis.js";
import type { Process } from "../delivery/handler.js";
import { countOutcome } from "../delivery/observe.js";
import { backoff, MINUTE, SECOND } from "../kernel/time.js";
import { createShares } from "./shares.js";

const AGAIN_BASE_MS = 5 * SECOND;
/** NATS gives a message up after 1,000 deliveries: some two days of these. */
const AGAIN_CAP_MS = 5 * MINUTE;

/**
 * Accounts of the AT Protocol may wait for tokens for hours, and take half of the slots at most. A message without a
 * slot goes back to NATS before an attempt of it is counted.
 */
export function keepingSlotsFree(slots: number, process: Process): Process {
  const ofAtproto = createShares(Math.floor(slots / 2));
  return async (delivery, context) => {
    const request = requestIn(delivery.body);
    if (!request || !isDid(request.did)) return process(delivery, context);
    const end = ofAtproto.take(request.user_id);
    if (!end) {
      countOutcome("waited", delivery);
      return { kind: "retry", delayMs: backoff(delivery.deliveries, AGAIN_BASE_MS, AGAIN_CAP_MS) };
    }
    try {
      return await process(delivery, context);
    } finally {
      end();
    }
  };
}
