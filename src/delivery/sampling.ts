import { setMaxListeners } from "node:events";
import { type Attributes, type Gauge, metrics } from "@opentelemetry/api";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause } from "../kernel/time.js";

/** One figure that a sample found. */
export interface Figure {
  readonly gauge: Gauge;
  readonly labels: Attributes;
  readonly value: number;
}

/** Something outside this process that is asked now and then. */
export interface Sample {
  /** Label of `timeline_sample_up`; names the thing that is asked. */
  readonly name: string;
  /** Rejects where nothing can be known now. */
  take(): Promise<readonly Figure[]>;
}

/** How samples are taken. */
export interface SamplingOptions {
  readonly everyMs: number;
  readonly log: Logger;
}

const meter = metrics.getMeter("avion-timeline");
const up = meter.createGauge("timeline_sample_up", {
  description: "Whether the last sample worked (1) or failed (0); while it fails its gauges are NaN",
});

/**
 * Takes each sample by itself, so that one that fails or hangs does not stop the others. The exporter repeats the last
 * value of a gauge for ever: what a sample no longer finds is recorded as NaN, so that no old value stands as if fresh.
 */
export function startSampling(samples: readonly Sample[], options: SamplingOptions): { close(): Promise<void> } {
  const stopping = new AbortController();
  setMaxListeners(0, stopping.signal);
  const running = samples.map((sample) => repeat(sample, options, stopping.signal));
  return {
    async close() {
      stopping.abort();
      await Promise.race([Promise.all(running), pause(CLOSE_MS)]);
    },
  };
}

const CLOSE_MS = 500;
/** Intervals without an answer after which a sample counts as failed. */
const PATIENCE = 2;
const UNANSWERED: Attempt = { found: [], error: "no answer" };

async function repeat(sample: Sample, { everyMs, log }: SamplingOptions, stopping: AbortSignal): Promise<void> {
  let shown: readonly Figure[] = [];
  let failing = false;
  while (!stopping.aborted) {
    const asked = attempt(sample);
    const { found, error } = await Promise.race([asked, pause(PATIENCE * everyMs, stopping).then(() => UNANSWERED)]);
    if (stopping.aborted) return;
    if (error !== undefined && !failing) log.warn({ sample: sample.name, error }, "a sample for metrics failed");
    if (error === undefined && failing) log.info({ sample: sample.name }, "the sample for metrics works again");
    failing = error !== undefined;
    for (const { gauge, labels } of shown) gauge.record(Number.NaN, labels);
    for (const { gauge, labels, value } of found) gauge.record(value, labels);
    up.record(failing ? 0 : 1, { sample: sample.name });
    shown = found;
    await pause(everyMs, stopping);
    // One question at a time, however long its answer takes.
    await asked;
  }
}

interface Attempt {
  readonly found: readonly Figure[];
  readonly error?: string;
}

async function attempt(sample: Sample): Promise<Attempt> {
  try {
    return { found: await sample.take() };
  } catch (error) {
    return { found: [], error: oneLine(error) };
  }
}
