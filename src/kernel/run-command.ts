import { spawn } from "node:child_process";

/** `code` is -1 for a command that could not be started or timed out. */
export type CommandResult = { readonly code: number; readonly output: string };

type CommandOptions = { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv; readonly timeoutMs?: number };

const DEFAULT_TIMEOUT_MS = 10_000;
const OUTPUT_LIMIT_CHARS = 64 * 1024;

export function runCommand(
  command: string,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd: options.cwd,
      env: options.env ?? process.env,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    const collect = (chunk: string): void => {
      output = (output + chunk).slice(-OUTPUT_LIMIT_CHARS);
    };
    child.stdout.setEncoding("utf8").on("data", collect);
    child.stderr.setEncoding("utf8").on("data", collect);
    // The timeout option of spawn keeps the process alive where the command does not exist.
    const timer = setTimeout(() => child.kill("SIGKILL"), options.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    const finish = (result: CommandResult): void => {
      clearTimeout(timer);
      resolve(result);
    };
    child.once("error", (error) => finish({ code: -1, output: `${command}: ${error.message}` }));
    child.once("close", (code) => finish({ code: code ?? -1, output }));
  });
}
