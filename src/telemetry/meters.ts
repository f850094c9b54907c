import { type Counter, type Gauge, type Histogram, metrics, type UpDownCounter } from "@opentelemetry/api";

// The meter is asked for each time: an instrument that is older than the telemetry of the process measures nothing.
const meter = () => metrics.getMeter("avion-timeline");

export const counter = (name: string, description: string): Counter => meter().createCounter(name, { description });

export const upDownCounter = (name: string, description: string): UpDownCounter =>
  meter().createUpDownCounter(name, { description });

export const gauge = (name: string, description: string): Gauge => meter().createGauge(name, { description });

/** @param bounds upper bounds of the buckets */
export const histogram = (name: string, description: string, bounds: readonly number[]): Histogram =>
  meter().createHistogram(name, { description, advice: { explicitBucketBoundaries: [...bounds] } });

export const observedGauge = (name: string, description: string, value: () => number): void =>
  meter()
    .createObservableGauge(name, { description })
    .addCallback((result) => result.observe(value()));

/** Calls `values` at each scrape: cheaper than a counter for what happens very often. Sums by label. */
export const observedCounter = (
  name: string,
  description: string,
  { label, values }: { readonly label: string; readonly values: () => Readonly<Record<string, number>> },
): void =>
  meter()
    .createObservableCounter(name, { description })
    .addCallback((result) => {
      for (const [value, sum] of Object.entries(values())) result.observe(sum, { [label]: value });
    });
