import type { Logger } from "../kernel/logger.js";
import { createLogger } from "../platform/logger.js";
import type { Config } from "./config/config.js";
import { VERSION } from "./version.js";

/** Makes the logger of a process that serves; without a file it writes to standard output. */
export function createServiceLogger(config: Config, file?: string): Logger {
  const fields = { service: "avion-timeline", version: VERSION };
  return createLogger({ level: config.TIMELINE_LOG_LEVEL, fields, file });
}
