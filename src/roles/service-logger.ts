import type { Logger } from "../kernel/logger.js";
import { createLogger, type LogLevel } from "../platform/logger.js";
import { VERSION } from "./version.js";

/** Makes the logger of a process that serves; without a file it writes to standard output. */
export function createServiceLogger(level: LogLevel, file?: string): Logger {
  const fields = { service: "avion-timeline", version: VERSION };
  return createLogger({ level, fields, file });
}
