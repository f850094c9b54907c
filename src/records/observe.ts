import type { Lane, Lanes } from "../kernel/lanes.js";
import { gauge } from "../kernel/meters.js";

const figures = {
  window: gauge(
    "timeline_redis_write_window",
    "Entries that may be under way to Redis; less than a call: one call at a time, and a rest after it",
  ),
  waiting: gauge("timeline_redis_writes_waiting", "Calls with entries that wait for a turn"),
};

export function observeLane(lane: keyof Lanes, { window, waiting }: Lane): void {
  figures.window.record(window, { lane });
  figures.waiting.record(waiting, { lane });
}
