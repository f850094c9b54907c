import { trace } from "@opentelemetry/api";
import { destination, type LoggerOptions as PinoOptions, pino, stdTimeFunctions } from "pino";
import type { Logger } from "../kernel/logger.js";

/** Levels a log can be set to. */
export const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** How a process logs. */
export interface LoggerOptions {
  readonly level: LogLevel;
  /** Fields of every line. */
  readonly fields: object;
  /** A file to append to; undefined: standard output. */
  readonly file?: string | undefined;
}

/** Makes the process's logger: JSON lines, each with the trace it belongs to. */
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
  return pino(options, destination({ dest: file ?? 1, sync: file === undefined }));
}
