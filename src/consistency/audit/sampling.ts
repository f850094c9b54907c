import { parseJson } from "../../contracts/events.js";
import type { FanoutCompleted } from "../../contracts/notifications.js";
import type { Context, Delivery, Outcome } from "../../delivery/handler.js";
import { contextOf, inSpan } from "../../delivery/traced.js";
import { codeOf, oneLine } from "../../kernel/errors.js";
import { MINUTE, pause, SECOND } from "../../kernel/time.js";
import type { PublicationResult } from "./publications.js";

interface SamplingDeps {
  readonly check: (completed: FanoutCompleted, context: Context) => Promise<PublicationResult>;
  readonly observe: (result: PublicationResult) => void;
  /** Of 100 publications so many are checked. */
  readonly percent: number;
  /** Checks a second at most; what is beyond that is skipped. */
  readonly rate: number;
  /** From the last write to the check, in ms. */
  readonly delayMs: number;
}

/**
 * What landed longer ago, or was dated back by more when it was published, is left to the audits of whole timelines:
 * an import takes no turn from what is new.
 */
const OLDEST_MS = 10 * MINUTE;
/** A check that meets an outage is tried so often. */
const MOST_TRIES = 3;
const RETRY_MS = 5 * SECOND;

/**
 * Has some of the completed publications checked, each by one process, a while
 * after its last write. A message is acked after its check, so that another
 * process takes over what a dead one had in hand.
 */
export function createSampling(deps: SamplingDeps): (delivery: Delivery, context: Context) => Promise<Outcome> {
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

function skipped({ observe }: SamplingDeps): Outcome {
  observe("skipped");
  return { kind: "ack" };
}

async function checked(
  { check, observe }: SamplingDeps,
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

/** Allows `rate` a second, and a second's worth at once. */
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
