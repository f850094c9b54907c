import { observeReconcile } from "../consistency/reconcile/observe.js";
import type { Mending } from "../consistency/redis-loss/guard.js";
import { createReadBacklog } from "../consistency/redis-loss/log.nats.js";
import { observeReplay } from "../consistency/redis-loss/observe.js";
import { isHopeless, persistent } from "../consistency/redis-loss/persistent.js";
import { eventOfSubject } from "../contracts/events.js";
import { REPLAY_LEASE_KEY } from "../contracts/keys.js";
import { CLOCK_SKEW_MS } from "../contracts/times.js";
import { letterOf } from "../delivery/dead-letter.js";
import type { Delivery } from "../delivery/handler.js";
import { countOutcome } from "../delivery/measured.js";
import { oneLine } from "../kernel/errors.js";
import { DAY, HOUR } from "../kernel/time.js";
import { createLease } from "../platform/redis/lease.js";
import { deadLettersTo } from "./consumers.js";
import { createReconciling } from "./reconciling.js";
import { refillLog } from "./refilling.js";
import type { Apply, Replaying } from "./replaying.js";
import type { RoleDeps } from "./role.js";
import { VERSION } from "./version.js";

/** As old as events in `DROPS` become (max_age). */
const LOG_AGE_MS = 7 * DAY;
/** What was admitted at some time may have changed in the upstreams that much earlier: it waited for an outage. */
const ADMISSION_LAG_MS = HOUR;

/**
 * How one process makes good for a Redis that has lost what it had confirmed, or a log that was lost: what the log is
 * missing is looked up in the upstreams, and then the log is applied again.
 *
 * While a server is away the replay breaks off, and begins anew: Redis may lose
 * yet more. What fails by itself is put aside after its attempts, so that one
 * author does not keep everybody's pages degraded. It becomes a dead letter:
 * Redis does not hold it any more, and the log's consumers are done with it.
 */
export function createMending({ config, connections, log }: RoleDeps, replaying: Replaying): Mending {
  const { nats, publish, scripts } = connections;
  const deadLetters = deadLettersTo(publish);
  const leftOut = async (event: Delivery, error: unknown, attempts: number): Promise<void> => {
    const fields = { seq: event.seq, error: oneLine(error) };
    // Its letter was written when it was planned.
    if (isHopeless(error))
      return log.warn(fields, "an event of the log can never be applied; the replay passes it over");
    const about = { reason: "exhausted", error, version: VERSION, now: Date.now() } as const;
    await deadLetters(letterOf(event, attempts, { ...about, event: eventOfSubject(event.subject) }));
    countOutcome("dead-lettered", event);
    log.warn(fields, "an event of the log could not be applied again; it is put aside as a dead letter");
  };
  const delayMs = config.delivery.retryBaseMs;
  observeReplay.started();
  const readAgain = createReconciling(connections, log, (method) =>
    log.error(
      { method },
      "the log was lost, and the upstream cannot tell what changed: what was not applied yet stays lost",
    ),
  );
  const reconcile = async (since: number, stopping: AbortSignal): Promise<void> => {
    const found = await readAgain({ since, until: Date.now() }, undefined, stopping);
    observeReconcile.reconciled(found);
    log.warn({ ...found, since }, "the log was lost; what the upstreams changed since is admitted again");
  };
  const readBacklog = createReadBacklog(nats);
  return {
    lease: createLease(scripts, REPLAY_LEASE_KEY),
    readBacklog,
    mend: async ({ since, log: logLost, note }, stopping) => {
      const from = note ? Date.now() - LOG_AGE_MS : since - CLOCK_SKEW_MS;
      const until = from - ADMISSION_LAG_MS;
      if (logLost) await reconcile(until, stopping);
      const options = { stopping, around: (apply: Apply) => persistent(apply, { leftOut, stopping, delayMs }) };
      const events = await replaying({ from }, options);
      const refill = { reconcile: readAgain, readBacklog, log };
      if (logLost && !note) void refillLog(refill, { since: Date.now() - LOG_AGE_MS, until }, stopping);
      return events;
    },
    observe: observeReplay.mended,
  };
}
