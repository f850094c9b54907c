import { trace } from "@opentelemetry/api";
import { destination, type LoggerOptions as PinoOptions, pino, stdTimeFunctions } from "pino";
import type { Logger } from "../kernel/logger.js";

export const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
type LogLevel = (typeof LOG_LEVELS)[number];

interface LoggerOptions {
  readonly level: LogLevel;
  readonly fields: object;
  /** The default is the standard output. */
  readonly file?: string | undefined;
}

/** Lines beyond this are discarded until the reader of the log continues. */
const MOST_WAITING_BYTES = 16 * 1024 * 1024;
const BATCH_BYTES = 4_096;
const FLUSH_MS = 100;

export function createLogger({ level, fields, file }: LoggerOptions): Logger {
  const options: PinoOptions = {
    level,
    base: { ...fields },
    timestamp: stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    mixin: () => {
      const span = trace.getActiveSpan()?.spanContext();
      return span ? { trace_id: span.traceId, span_id: span.spanId } : {};
    },
  };
  // A reader that stalls must not hold up the process.
  const bounds = { minLength: BATCH_BYTES, periodicFlush: FLUSH_MS, maxLength: MOST_WAITING_BYTES };
  return pino(options, destination({ dest: file ?? 1, sync: false, ...bounds }));
}
