import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type MetricOptions, metrics } from "@opentelemetry/api";

/** An instrument that the code makes, under the name Prometheus shows. */
export interface Instrument {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly description: string;
  /** The upper bounds of a histogram's buckets. */
  readonly bounds?: readonly number[] | undefined;
}

const TYPES = {
  createCounter: "counter",
  createObservableCounter: "counter",
  createHistogram: "histogram",
  createGauge: "gauge",
  createUpDownCounter: "gauge",
  createObservableGauge: "gauge",
} as const;

/** Loads every module of src that makes instruments, and yields what they make. */
export async function readInstruments(): Promise<Instrument[]> {
  const made: Instrument[] = [];
  const silent = { add: () => undefined, record: () => undefined, addCallback: () => undefined };
  const meter = Object.fromEntries(
    Object.entries(TYPES).map(([method, type]) => [
      method,
      (name: string, { description = "", advice }: MetricOptions = {}) => {
        const bounds = advice?.explicitBucketBoundaries;
        made.push({ name: type === "counter" ? `${name}_total` : name, type, description, bounds });
        return silent;
      },
    ]),
  );
  metrics.disable();
  metrics.setGlobalMeterProvider({ getMeter: () => meter as never });
  for (const name of makers()) await import(`../../src/${name}.ts`);
  const { Readiness } = await import("../../src/roles/service.js");
  new Readiness([]);
  const { observePulled } = await import("../../src/state/big-authors/observe.js");
  observePulled(() => undefined);
  const { observeGateway } = await import("../../src/gateway/observe.js");
  observeGateway.keys(() => 0);
  const { observeRecovery } = await import("../../src/consistency/observe.js");
  observeRecovery.behind(() => false);
  observeRecovery.filled(() => undefined);
  await import("../../src/reads/observe.js");
  const { observeReadCache } = await import("../../src/state/entries/observe.js");
  const events = { hit: 0, miss: 0, changed: 0, deleted: 0, evicted: 0, expired: 0 };
  observeReadCache.pages({ events, bytes: () => 0 });
  observeReadCache.tombstones(() => 0);
  metrics.disable();
  return made;
}

/** The modules that make instruments: paths in src, without the extension. */
function makers(): string[] {
  const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
  return files
    .filter((file) => /from "[^"]*\/meters\.js"/.test(readFileSync(join("src", file), "utf8")))
    .map((file) => file.slice(0, -".ts".length));
}
