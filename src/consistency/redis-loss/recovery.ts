import { eventOfSubject, messageId, parseStored } from "../../contracts/events.js";
import type { Affected } from "../../contracts/timelines.js";
import { CLOCK_SKEW_MS, LOG_AGE_MS } from "../../contracts/times.js";
import { cutWhereTooLarge, deadLetterOf, type StoreDeadLetter } from "../../delivery/dead-letter.js";
import type { Delivery } from "../../delivery/handler.js";
import { countOutcome } from "../../delivery/observe.js";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { sharedNow } from "../../kernel/time.js";
import { affectedBy, type SetAside } from "../../state/index.js";
import { observeReconcile } from "../observe.js";
import { ADMISSION_LAG_MS, type Reconcile, type TimeRange, untilNow } from "../reconcile/reconcile.js";
import { isPermanent, type ReadRange, replay, retrying } from "../replay.js";
import type { Recovery } from "./loss-detector.js";

export interface RecoveryDeps {
  readonly readRange: ReadRange;
  readonly apply: (event: Delivery) => Promise<void>;
  readonly reconcile: Reconcile;
  /** Fills the log in the background with the changes of a range: later refills and replays need them. */
  readonly beginFill: (range: TimeRange) => Promise<void>;
  /** Stores an event at the end of the log again; returns its new sequence. */
  readonly readmit: (event: Delivery) => Promise<number>;
  /**
   * Returns true if the server that applies events answers, and the upstream that is asked about an event's user does
   * not.
   */
  readonly isUpstreamAway: (error: unknown) => boolean;
  readonly isBusy: (error: unknown) => boolean;
  readonly storeDeadLetter: StoreDeadLetter;
  readonly version: string;
  readonly retryBaseMs: number;
  readonly log: Logger;
}

/**
 * Composes the recovery. An outage of Redis or NATS ends the replay, which then starts again: Redis may have lost more.
 * Up to a bound, events that an unavailable upstream delays are set aside: they are admitted again, silently, when all
 * others are applied. An event that fails for another reason becomes a dead letter, so that it does not keep all pages
 * degraded; the consumers of the log are done with it.
 */
export function createRecovery(deps: RecoveryDeps): Recovery["recover"] {
  const { log, reconcile, isBusy, retryBaseMs: delayMs } = deps;
  const leftOut = (event: Delivery, error: unknown, attempts: number) => leaveOut(deps, event, { error, attempts });
  return async ({ since, log: logLost }, stopping) => {
    const from = since - CLOCK_SKEW_MS;
    const changedSince = from - ADMISSION_LAG_MS;
    if (logLost) {
      const reconciled = await reconcile(untilNow(changedSince), { stopping });
      observeReconcile.reconciled(reconciled);
      log.warn({ ...reconciled, since: changedSince }, "the log was lost; changes since then are admitted again");
    }
    const aside = new Aside(deps);
    const apply = retrying(aside.applying(deps.apply), { leftOut, isBusy, stopping, delayMs });
    const range = { since: from, until: Number.POSITIVE_INFINITY };
    const events = await replay(deps.readRange(range), apply, { stopping });
    if (logLost) await deps.beginFill({ since: sharedNow() - LOG_AGE_MS, until: changedSince });
    return { events, setAside: await aside.readmit() };
  };
}

/** Maximum number of users whose homes are degraded for long: their readers are looked up in the record each second. */
const MOST_USERS = 200;
const MOST_EVENTS = 2_000;

class Aside {
  readonly #events = new Map<string, Delivery>();
  readonly #affected = new Map<string, Affected>();

  constructor(private readonly deps: Pick<RecoveryDeps, "readmit" | "isUpstreamAway">) {}

  /** @throws the error of an event that cannot be set aside */
  applying(apply: RecoveryDeps["apply"]): RecoveryDeps["apply"] {
    return async (delivery) => {
      try {
        await apply(delivery);
      } catch (error) {
        if (!this.deps.isUpstreamAway(error)) throw error;
        const event = parseStored(delivery.subject, delivery.body, delivery.time);
        const id = messageId(event);
        const affected = affectedBy(event);
        this.#events.set(id, delivery);
        if (affected) this.#affected.set(`${affected.kind} ${affected.user}`, affected);
        if (this.#events.size > MOST_EVENTS || this.#affected.size > MOST_USERS) throw error;
      }
    };
  }

  async readmit(): Promise<SetAside[]> {
    let seq = 0;
    for (const event of this.#events.values()) seq = await this.deps.readmit(event);
    const now = sharedNow();
    return [...this.#affected.values()].map((affected) => ({ ...affected, seq, at: now }));
  }
}

async function leaveOut(
  { storeDeadLetter, version, log }: RecoveryDeps,
  event: Delivery,
  { error, attempts }: { readonly error: unknown; readonly attempts: number },
): Promise<void> {
  const fields = { seq: event.seq, error: oneLine(error) };
  if (isPermanent(error)) return log.warn(fields, "an event of the log can never be applied; the replay skips it");
  const about = { reason: "exhausted", error, version, now: sharedNow() } as const;
  const store = cutWhereTooLarge(storeDeadLetter);
  await store(deadLetterOf(event, attempts, { ...about, event: eventOfSubject(event.subject) }));
  countOutcome("dead-lettered", event);
  log.warn(fields, "an event of the log could not be applied again; it is a dead letter now");
}
