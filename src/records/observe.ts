import type { Lane, LaneName } from "../kernel/lanes.js";
import { gauge } from "../kernel/meters.js";

const callsWaiting = gauge("timeline_redis_writes_waiting", "Calls with entries that wait for a turn");

export function observeLane(lane: LaneName, { waiting }: Lane): void {
  callsWaiting.record(waiting, { lane });
}
