import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { openSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { SECOND } from "../kernel/time.js";

const MAIN = fileURLToPath(new URL("../main.js", import.meta.url));

interface Worker {
  pid(): number | undefined;
  /** The listener is called whenever another process takes the place of one that ended. */
  onReplaced(listener: () => void): void;
  stop(): Promise<void>;
}

/** Starts a worker that ends with this process: it stops when the channel to its parent breaks. */
export function superviseWorker(env: NodeJS.ProcessEnv, logFile: string): Worker {
  const log = openSync(logFile, "a");
  let stopped = false;
  let child: ChildProcess;
  let replaced = (): void => undefined;
  const start = (): void => {
    child = spawn(process.execPath, [MAIN, "serve"], { env, stdio: ["ignore", log, log, "ipc"] });
    child.once("exit", () => {
      if (!stopped) setTimeout(restart, SECOND / 2).unref();
    });
  };
  const restart = (): void => {
    start();
    replaced();
  };
  start();
  return {
    pid: () => child.pid,
    onReplaced: (listener) => {
      replaced = listener;
    },
    stop: async () => {
      stopped = true;
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      await ended;
    },
  };
}
