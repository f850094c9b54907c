import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { identify, isAlive, type ProcessIdentity, signalProcess, waitUntilGone } from "../../kernel/processes.js";

const GUARD = fileURLToPath(new URL("broker-guard.sh", import.meta.url));
const STOP_GRACE_MS = 5_000;

export interface BrokerExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A server and its end. The guard around it is another process. */
export interface GuardedServer {
  readonly identity: ProcessIdentity;
  readonly exited: Promise<BrokerExit>;
  /** Sends SIGTERM, then SIGKILL after 5 seconds; it is safe to call twice. */
  stop(): Promise<void>;
  kill(signal: NodeJS.Signals): void;
}

/** Starts a server that ends with this process, however this process ends. Its output goes to the file `logFd`. */
export async function spawnGuarded(options: {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Record<string, string>;
  readonly cwd: string;
  readonly logFd: number;
}): Promise<GuardedServer> {
  // Detached: Ctrl-C in the terminal reaches only this process, which ends the servers after those who use them.
  const guard = spawn("/bin/sh", [GUARD, options.command, ...options.args], {
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
    stdio: ["pipe", options.logFd, options.logFd, "pipe"],
    detached: true,
  });
  const ended = whenEnded(guard);
  guard.stdin?.on("error", () => undefined);
  const pid = Number(await text(guard.stdio[3] as Readable).catch(() => ""));
  if (!Number.isInteger(pid) || pid <= 0) throw new Error("the guard of the server could not be started");
  // A server that has ended already has no start time; the empty one matches no process.
  const identity = (await identify(pid)) ?? { pid, startTime: "" };
  const exited = ended.then((exit) => withoutOrphan(identity, exit));
  let gone = false;
  const noteEnd = (): void => {
    gone = true;
  };
  void exited.then(noteEnd, noteEnd);
  return {
    identity,
    exited,
    stop: async () => {
      // `exited` resolves sooner than the polling of endServer.
      if (!gone) await Promise.race([exited, endServer(identity)]);
      await exited;
    },
    kill: (signal) => void (gone || signalProcess(pid, signal)),
  };
}

function whenEnded(guard: ChildProcess): Promise<BrokerExit> {
  return new Promise((resolve) => {
    guard.once("error", () => resolve({ code: -1, signal: null }));
    guard.once("exit", (code, signal) => {
      const name = Object.entries(constants.signals).find(([, number]) => code === 128 + number)?.[0];
      resolve(name === undefined ? { code, signal } : { code: null, signal: name as NodeJS.Signals });
    });
  });
}

/** Ends a server whose guard was killed alone. */
async function withoutOrphan(server: ProcessIdentity, exit: BrokerExit): Promise<BrokerExit> {
  if (!(await isAlive(server))) return exit;
  signalProcess(server.pid, "SIGKILL");
  await waitUntilGone(server, STOP_GRACE_MS);
  return { code: null, signal: "SIGKILL" };
}

/** Ends a server by SIGTERM, and by SIGKILL after five seconds; false if it lives on for five more. */
export async function endServer(server: ProcessIdentity): Promise<boolean> {
  signalProcess(server.pid, "SIGTERM");
  // A server stopped by SIGSTOP would not see the SIGTERM.
  signalProcess(server.pid, "SIGCONT");
  if (await waitUntilGone(server, STOP_GRACE_MS)) return true;
  signalProcess(server.pid, "SIGKILL");
  return waitUntilGone(server, STOP_GRACE_MS);
}
