import { oneLine } from "../kernel/errors.js";
import { silent } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import { startTelemetry } from "../platform/telemetry.js";
import { Closers } from "./closers.js";
import { checkFiles, readConfig } from "./config.js";
import { VERSION } from "./version.js";

/** Beyond the grace period everything is given this long to close. */
const CLOSE_MARGIN_MS = 10 * SECOND;

/** Runs the roles until a signal comes; exits 0 after what was in flight is finished. */
export async function serve(): Promise<void> {
  const config = readConfig(process.env);
  checkFiles(config);
  const closers = new Closers();
  const stop = (signal: NodeJS.Signals): void => {
    const kill = setTimeout(() => process.exit(1), config.TIMELINE_SHUTDOWN_GRACE_MS + CLOSE_MARGIN_MS);
    kill.unref();
    console.error(JSON.stringify({ level: "info", msg: `${signal}: finishing what is in flight` }));
    void closers.closeAll(silent).then(() => process.exit(0));
  };
  process.once("SIGTERM", stop);
  process.once("SIGINT", stop);
  // Whoever started this process with a channel wants it to end with them.
  process.once("disconnect", () => stop("SIGTERM"));
  try {
    const telemetry = startTelemetry(process.env, VERSION);
    closers.add("telemetry", () => telemetry.close());
    const { startService } = await import("./service.js");
    await startService(config, { closers, telemetry });
  } catch (error) {
    console.error(`avion-timeline cannot start: ${oneLine(error)}`);
    await closers.closeAll(silent);
    process.exit(1);
  }
}
