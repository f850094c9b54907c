import { readFileSync } from "node:fs";
import type { Logger } from "../kernel/logger.js";
import { createLogger, type LogLevel } from "../platform/logger.js";

const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  version: string;
};

export const VERSION = manifest.version;

/** The logger of a process that runs roles; without a file it writes to standard output. */
export function createServiceLogger(level: LogLevel, file?: string): Logger {
  return createLogger({ level, fields: { service: "avion-timeline", version: VERSION }, file });
}
