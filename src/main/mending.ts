import { eventOfSubject } from "../contracts/events.js";
import { letterOf } from "../delivery/dead-letter.js";
import type { Delivery } from "../delivery/handler.js";
import { countOutcome } from "../delivery/measured.js";
import { oneLine } from "../kernel/errors.js";
import { createLease } from "../replay/continuity.redis.js";
import type { Mending } from "../replay/guard.js";
import { createReadBacklogStart } from "../replay/log.nats.js";
import { observeReplay } from "../replay/observe.js";
import { isHopeless, persistent } from "../replay/persistent.js";
import { deadLettersTo } from "./consumers.js";
import type { Replaying } from "./replaying.js";
import type { RoleDeps } from "./role.js";
import { VERSION } from "./version.js";

/**
 * How one process applies the log again after a Redis has lost what it had confirmed.
 *
 * While a server is away the replay breaks off, and begins anew: Redis may lose
 * yet more. What fails by itself is put aside after its attempts, so that one
 * author does not keep everybody's pages degraded. It becomes a dead letter:
 * Redis does not hold it any more, and the log's consumers are done with it.
 */
export function createMending(
  { config, connections: { nats, publish, scripts }, log }: RoleDeps,
  replaying: Replaying,
): Mending {
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
  const delayMs = config.TIMELINE_RETRY_BASE_MS;
  observeReplay.started();
  return {
    lease: createLease(scripts),
    readBacklogStart: createReadBacklogStart(nats),
    replay: (stretch, stopping) =>
      replaying(stretch, { stopping, around: (apply) => persistent(apply, { leftOut, stopping, delayMs }) }),
    observe: observeReplay.mended,
  };
}
