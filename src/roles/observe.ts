import { metrics } from "@opentelemetry/api";

/** Exports what `/readyz` says. */
export function observeReady(ready: () => boolean): void {
  metrics
    .getMeter("avion-timeline")
    .createObservableGauge("timeline_ready", { description: "Whether /readyz says 200 (1) or 503 (0)" })
    .addCallback((result) => result.observe(ready() ? 1 : 0));
}
