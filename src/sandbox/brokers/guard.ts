import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import {
  identify,
  isAlive,
  type ProcessIdentity,
  signalProcess,
  waitUntilGone,
} from "../../kernel/process-identity.js";
import type { BrokerExit } from "./types.js";

/*
 * The guard is a small shell between us and the server. It holds the read end of a pipe whose write end only we have:
 * when we end, even by SIGKILL, the kernel closes the pipe, the guard's reader sees end of file and ends the server.
 * The reader is a subshell with the `read` builtin, so the guard itself can wait for the server and pass on its code.
 * SIGCONT follows SIGTERM because a stopped server would otherwise stay for ever.
 */
const GUARD = `
exec 4<&0 </dev/null
"$@" 3>&- 4<&- &
server=$!
trap 'kill -TERM "$server" 2>/dev/null' TERM INT HUP
echo "$server" >&3
exec 3>&-
{ trap - TERM; while read -r _ <&4; do :; done; kill -TERM "$server"; kill -CONT "$server"; } >/dev/null 2>&1 &
reader=$!
exec 4<&-
wait "$server"; code=$?
while kill -0 "$server" 2>/dev/null; do wait "$server"; code=$?; done
kill -TERM "$reader" 2>/dev/null
exit "$code"
`;

const KILL_WAIT_MS = 5_000;

/** A server running under its guard. */
export type GuardedServer = { readonly identity: ProcessIdentity; readonly exited: Promise<BrokerExit> };

type GuardOptions = {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Record<string, string>;
  readonly cwd: string;
  /** An open file that gets everything the server prints. */
  readonly logFd: number;
};

/** Starts a server that ends with this process, however this process ends. */
export async function spawnGuarded(options: GuardOptions): Promise<GuardedServer> {
  // Detached: Ctrl-C in the terminal reaches only us, and we stop the servers after their users.
  const guard = spawn("/bin/sh", ["-c", GUARD, "broker-guard", options.command, ...options.args], {
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
    stdio: ["pipe", options.logFd, options.logFd, "pipe"],
    detached: true,
  });
  const ended = whenEnded(guard);
  guard.stdin?.on("error", () => undefined);
  const pid = Number(await firstLine(guard.stdio[3] as Readable));
  if (!Number.isInteger(pid) || pid <= 0) throw new Error("the guard of the server could not be started");
  // A server that is gone already has no start time; the empty one matches no process.
  const identity = (await identify(pid)) ?? { pid, startTime: "" };
  return { identity, exited: ended.then((exit) => withoutOrphan(identity, exit)) };
}

function whenEnded(guard: ChildProcess): Promise<BrokerExit> {
  return new Promise((resolve) => {
    guard.once("error", () => resolve({ code: -1, signal: null }));
    guard.once("exit", (code, signal) => resolve(toExit(code, signal)));
  });
}

// A shell reports a child that was ended by signal N as code 128 + N.
function toExit(code: number | null, signal: NodeJS.Signals | null): BrokerExit {
  const name = Object.entries(constants.signals).find(([, number]) => code === 128 + number)?.[0];
  return name === undefined ? { code, signal } : { code: null, signal: name as NodeJS.Signals };
}

// Somebody may have killed the guard alone; its server has nobody to watch over it then.
async function withoutOrphan(identity: ProcessIdentity, exit: BrokerExit): Promise<BrokerExit> {
  if (!(await isAlive(identity))) return exit;
  signalProcess(identity.pid, "SIGKILL");
  await waitUntilGone(identity, KILL_WAIT_MS);
  return { code: null, signal: "SIGKILL" };
}

function firstLine(stream: Readable): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    stream.setEncoding("utf8");
    stream.on("data", (chunk: string) => {
      text += chunk;
    });
    stream.once("error", () => resolve(text.trim()));
    stream.once("close", () => resolve(text.trim()));
  });
}
