import { parseJson } from "../../contracts/events.js";
import type { FanoutCompleted } from "../../contracts/fanout.js";
import type { Context, Delivery, Outcome } from "../../delivery/handler.js";
import { contextOf, inSpan } from "../../delivery/telemetry.js";
import { codeOf, oneLine } from "../../kernel/errors.js";
import { MINUTE, pause, SECOND } from "../../kernel/time.js";
import type { PublicationResult } from "./publications.js";

interface SampledChecksDeps {
  readonly check: (completed: FanoutCompleted, context: Context) => Promise<PublicationResult>;
  readonly observe: (result: PublicationResult) => void;
  readonly percent: number;
  readonly rate: number;
  /** From the last write to the check, in ms. */
  readonly delayMs: number;
}

/** Older or backdated publications are left to the audit loop: an import takes no checks from new drops. */
const OLDEST_MS = 10 * MINUTE;
const MOST_TRIES = 3;
const RETRY_MS = 5 * SECOND;

/** A message is acked after its check, so that another process takes over the checks of one that died. */
export function createSampledChecks(
  deps: SampledChecksDeps,
): (delivery: Delivery, context: Context) => Promise<Outcome> {
  const mayBegin = createBudget(deps.rate);
  return async (delivery, context) => {
    const completed = parseJson(delivery.body) as FanoutCompleted;
    const age = Date.now() - completed.landed_at;
    if (delivery.deliveries <= 1 && Math.random() * 100 >= deps.percent) return { kind: "ack" };
    const old = age > OLDEST_MS || completed.admitted_at - completed.created_at > OLDEST_MS;
    if (old || (delivery.deliveries <= 1 && !mayBegin())) return skipped(deps);
    await pause(Math.max(0, deps.delayMs - age), context.stopping);
    if (context.stopping.aborted) return { kind: "release" };
    return inSpan("audit publication", { parent: contextOf(delivery.headers) }, () =>
      checked(deps, { completed, delivery, context }),
    );
  };
}

function skipped({ observe }: SampledChecksDeps): Outcome {
  observe("skipped");
  return { kind: "ack" };
}

async function checked(
  { check, observe }: SampledChecksDeps,
  of: { readonly completed: FanoutCompleted; readonly delivery: Delivery; readonly context: Context },
): Promise<Outcome> {
  const { stopping, log } = of.context;
  try {
    const result = await check(of.completed, of.context);
    if (stopping.aborted && result === "undecided") return { kind: "release" };
    observe(result);
  } catch (error) {
    if (codeOf(error) === "unavailable" && of.delivery.deliveries < MOST_TRIES)
      return { kind: "retry", delayMs: RETRY_MS };
    log.warn({ error: oneLine(error) }, "a publication could not be checked");
    observe("failed");
  }
  return { kind: "ack" };
}

/** A token bucket: `rate` a second, and as many at once. */
function createBudget(rate: number): () => boolean {
  let left = rate;
  let at = performance.now();
  return () => {
    const now = performance.now();
    left = Math.min(rate, left + ((now - at) / SECOND) * rate);
    at = now;
    if (left < 1) return false;
    left--;
    return true;
  };
}
