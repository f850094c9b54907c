import { LIMIT_KINDS, type LimitKind } from "../contracts/limits.js";
import type { LaneName } from "../kernel/lanes.js";
import { counter, gauge } from "../telemetry/meters.js";

const callsWaiting = gauge("timeline_redis_writes_waiting", "Calls with entries that wait for a turn");

export function observeLane(lane: LaneName, waiting: number): void {
  callsWaiting.record(waiting, { lane });
}

const limited = counter(
  "timeline_limited",
  "Calls that a limit refused, or could not count because Redis did not answer (uncounted)",
);

export const observeLimits = {
  started: (): void => {
    for (const limit of LIMIT_KINDS) limited.add(0, { limit, outcome: "refused" });
  },
  refused: (limit: LimitKind): void => limited.add(1, { limit, outcome: "refused" }),
  uncounted: (limit: LimitKind): void => limited.add(1, { limit, outcome: "uncounted" }),
};
