import type { Attributes, Gauge } from "@opentelemetry/api";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop } from "../kernel/loop.js";
import { pause } from "../kernel/time.js";
import { gauge } from "./meters.js";

export interface Measurement {
  readonly gauge: Gauge;
  readonly labels: Attributes;
  readonly value: number;
}

export interface Sample {
  /** The name is the label of `timeline_sample_up`. */
  readonly name: string;
  /** Rejects if nothing can be known now. */
  take(): Promise<readonly Measurement[]>;
}

interface SamplingOptions {
  readonly everyMs: number;
  readonly log: Logger;
}

const up = gauge("timeline_sample_up", "Whether the last sample worked (1) or failed (0)");

const CLOSE_MS = 500;
/** Number of intervals without an answer after which a sample counts as failed. */
const MISSED_SAMPLES = 2;

/** The exporter repeats the last value of a gauge for ever: one that is no longer measured is recorded as NaN. */
export function startSampling(samples: readonly Sample[], options: SamplingOptions): { close(): Promise<void> } {
  const loops = samples.map((sample) => sampleLoop(sample, options));
  return { close: async () => void (await Promise.all(loops.map((loop) => loop.close()))) };
}

interface Answer {
  readonly measurements: readonly Measurement[];
  readonly error?: string;
}

const UNANSWERED: Answer = { measurements: [], error: "no answer" };

function sampleLoop(sample: Sample, { everyMs, log }: SamplingOptions): Loop {
  let shown: readonly Measurement[] = [];
  let failing = false;
  let asked: Promise<Answer> | undefined;
  return startLoop({
    everyMs,
    closeMs: CLOSE_MS,
    work: async (stopping) => {
      // One question at a time, however long its answer takes.
      await asked;
      asked = answerOf(sample);
      const { measurements, error } = await Promise.race([
        asked,
        pause(MISSED_SAMPLES * everyMs, stopping).then(() => UNANSWERED),
      ]);
      if (stopping.aborted) return;
      if (error !== undefined && !failing) log.warn({ sample: sample.name, error }, "a sample for metrics failed");
      if (error === undefined && failing) log.info({ sample: sample.name }, "the sample for metrics works again");
      failing = error !== undefined;
      for (const { gauge, labels } of shown) gauge.record(Number.NaN, labels);
      for (const { gauge, labels, value } of measurements) gauge.record(value, labels);
      up.record(failing ? 0 : 1, { sample: sample.name });
      shown = measurements;
    },
  });
}

const answerOf = (sample: Sample): Promise<Answer> =>
  sample.take().then(
    (measurements) => ({ measurements }),
    (error: unknown) => ({ measurements: [], error: oneLine(error) }),
  );
