import { observedGauge } from "../../telemetry/meters.js";
import { isSettled, type PulledAuthors } from "./pulled.js";

export function observePulled(copy: PulledAuthors["copy"]): void {
  const states = () => [...(copy()?.values() ?? [])];
  const count = (value: () => number) => () => (copy() === undefined ? Number.NaN : value());
  observedGauge(
    "timeline_pulled_authors",
    "Pulled authors; NaN while the registry cannot be read",
    count(() => states().length),
  );
  observedGauge(
    "timeline_crossing_authors",
    "Authors who change between pushed, tiered and pulled; NaN while the registry cannot be read",
    count(() => states().filter(({ state }) => !isSettled(state)).length),
  );
}
