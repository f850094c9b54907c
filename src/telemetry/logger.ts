import { trace } from "@opentelemetry/api";
import { destination, multistream, type LoggerOptions as PinoOptions, pino, stdTimeFunctions } from "pino";
import type { Logger } from "../kernel/logger.js";
import { createLogExport } from "./log-export.js";

export const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
type LogLevel = (typeof LOG_LEVELS)[number];

interface LoggerOptions {
  readonly logLevel: LogLevel;
  readonly fields: object;
  /** The share of the lines about served requests that are logged, 0 to 1. */
  readonly accessLogShare: number;
  /** Lines are exported by OpenTelemetry, too. */
  readonly isExported: boolean;
  /** The default is the standard output. */
  readonly file?: string | undefined;
}

/** Lines beyond this are discarded until the reader of the log continues. */
const MOST_WAITING_BYTES = 16 * 1024 * 1024;
const BATCH_BYTES = 4_096;
const FLUSH_MS = 100;

export function createLogger({ logLevel: level, accessLogShare, isExported, fields, file }: LoggerOptions): Logger {
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
  const written = destination({ dest: file ?? 1, sync: false, ...bounds });
  const both = () => multistream([written, createLogExport()].map((stream) => ({ stream, level: "debug" })));
  const log = pino(options, isExported ? both() : written);
  const logsAccess = (): boolean => log.isLevelEnabled("info") && Math.random() < accessLogShare;
  return Object.assign(log, { logsAccess });
}
