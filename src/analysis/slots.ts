import { isDid, parseRequest } from "../contracts/analysis.js";
import type { Delivery, Process } from "../delivery/handler.js";
import { countOutcome } from "../delivery/telemetry.js";
import { codeOf } from "../kernel/errors.js";
import { backoff, MINUTE, SECOND } from "../kernel/time.js";

const AGAIN_BASE_MS = 5 * SECOND;
/** NATS gives a message up after 1,000 deliveries: some two days of these. */
const AGAIN_CAP_MS = 5 * MINUTE;

/**
 * Accounts of the AT Protocol take at most half of the slots: they may wait for tokens for hours. Where they have these,
 * a message goes back to NATS before an attempt of it is counted, and comes again later.
 */
export function keepingSlotsFree(slots: number, process: Process): Process {
  const most = Math.floor(slots / 2);
  let taken = 0;
  return async (delivery, context) => {
    if (!isOfAtproto(delivery)) return process(delivery, context);
    if (taken >= most) {
      countOutcome("waited", delivery);
      return { kind: "retry", delayMs: backoff(delivery.deliveries, AGAIN_BASE_MS, AGAIN_CAP_MS) };
    }
    taken++;
    try {
      return await process(delivery, context);
    } finally {
      taken--;
    }
  };
}

function isOfAtproto({ body }: Delivery): boolean {
  try {
    return isDid(parseRequest(body).did);
  } catch (error) {
    if (codeOf(error) === "invalid") return false;
    throw error;
  }
}
