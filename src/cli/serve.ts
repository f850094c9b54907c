import type { Command } from "commander";
import { oneLine } from "../kernel/errors.js";
import { SECOND } from "../kernel/time.js";
import { ConfigError } from "../kernel/variables.js";
import { SERVICE_FIELDS, VERSION } from "../kernel/version.js";
import { Refusal } from "../platform/refusals.js";
import { Closers } from "../roles/closers.js";
import { channelWarning, configWarnings, readConfig } from "../roles/config/config.js";
import { checkFiles } from "../roles/config/files.js";
import type { Wraps } from "../roles/role.js";
import { startTelemetry } from "../telemetry/exporters.js";
import { createLogger } from "../telemetry/logger.js";
import { readOtel } from "../telemetry/otel-variables.js";

export function define(command: Command): void {
  command.action(() => serve());
}

/** Connections have so long to close after the grace period. */
const CLOSE_MARGIN_MS = 10 * SECOND;

/** Exits 0 after work in flight is finished and all is closed, 1 if a close failed or took too long. */
export async function serve(wraps: Wraps = {}): Promise<void> {
  const config = readConfig(process.env);
  checkFiles(config);
  const log = createLogger({
    ...config.process,
    isExported: readOtel(process.env).exportsLogs,
    fields: SERVICE_FIELDS,
  });
  for (const warning of [...configWarnings(process.env), ...[channelWarning(config) ?? []].flat()])
    log.warn({}, warning);
  process.on("uncaughtExceptionMonitor", (error) =>
    log.error({ error: oneLine(error), stack: error.stack }, "an uncaught error ends the process"),
  );
  const { shutdownGraceMs } = config.process;
  const closers = new Closers();
  const closeAll = (): Promise<boolean> => {
    setTimeout(() => {
      log.error({ what: closers.current }, "closing takes too long; the process ends without it");
      process.exit(1);
    }, shutdownGraceMs + CLOSE_MARGIN_MS);
    return closers.closeAll(log, shutdownGraceMs);
  };
  let stopping = false;
  const stop = (signal: NodeJS.Signals): void => {
    stopping = true;
    log.info({ signal }, "finishing what is in flight");
    void closeAll().then((allClosed) => {
      if (allClosed) log.info({ signal }, "closed");
      process.exit(allClosed ? 0 : 1);
    });
  };
  process.once("SIGTERM", stop);
  process.once("SIGINT", stop);
  // A parent that opened an IPC channel to this process has ended.
  process.once("disconnect", () => stop("SIGTERM"));
  try {
    const telemetry = startTelemetry(process.env, VERSION, log);
    closers.add("telemetry", () => telemetry.close());
    const { startService } = await import("../roles/service.js");
    await startService(config, { closers, telemetry, log, wraps });
  } catch (error) {
    // Closing the connections makes a start that still waits fail.
    if (stopping) return;
    const reason = reasonOf(error);
    log.error({ error: reason }, "cannot start");
    console.error(`avion-timeline cannot start: ${reason}`);
    await closeAll();
    process.exit(error instanceof ConfigError ? 2 : 1);
  }
}

function reasonOf(error: unknown): string {
  const advice = error instanceof Refusal ? error.advice : undefined;
  return advice === undefined ? oneLine(error) : `${oneLine(error)}; ${advice}`;
}
