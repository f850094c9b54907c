import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { SECOND } from "./time.js";

const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/** `code` is -1 for a command that could not be started or timed out. */
export function runCommand(
  command: string,
  args: readonly string[],
  options: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv; readonly timeoutMs?: number } = {},
): Promise<{ readonly code: number; readonly output: string }> {
  const { timeoutMs = 10 * SECOND, ...rest } = options;
  const limits = { timeout: timeoutMs, killSignal: "SIGKILL", maxBuffer: MAX_OUTPUT_BYTES } as const;
  return new Promise((resolve) => {
    execFile(command, args, { ...rest, ...limits }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === "number" ? error.code : -1;
      resolve({ code, output: stdout + stderr || (error?.message ?? "") });
    });
  });
}

/** The start time tells a process from a later one with the same pid. */
export type ProcessIdentity = { readonly pid: number; readonly startTime: string };

/** Resolves to undefined if no such process lives; a zombie has ended. */
export async function identify(pid: number): Promise<ProcessIdentity | undefined> {
  const startTime = process.platform === "linux" ? await fromProc(pid) : await fromPs(pid);
  return startTime === undefined ? undefined : { pid, startTime };
}

export async function isAlive(known: ProcessIdentity): Promise<boolean> {
  const now = await identify(known.pid);
  return now?.startTime === known.startTime;
}

async function fromProc(pid: number): Promise<string | undefined> {
  let text: string;
  try {
    text = await readFile(`/proc/${pid}/stat`, "utf8");
  } catch {
    return undefined;
  }
  // The command name may hold spaces and brackets: fields are counted from the last bracket.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state, startTicks] = [fields[0], fields[19]];
  return state === "Z" || state === "X" ? undefined : startTicks;
}

async function fromPs(pid: number): Promise<string | undefined> {
  const env = { ...process.env, LC_ALL: "C" };
  const { code, output } = await runCommand("ps", ["-o", "stat=", "-o", "lstart=", "-p", String(pid)], { env });
  const [, state, started] = /^\s*(\S+)\s+(.+?)\s*$/.exec(output) ?? [];
  return code !== 0 || state === undefined || state.startsWith("Z") ? undefined : started;
}
