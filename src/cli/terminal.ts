import { createInterface } from "node:readline";
import { type Logger, silent } from "../kernel/logger.js";
import { type Clock, SECOND } from "../kernel/time.js";

export const toTerminal: Logger = {
  ...silent,
  error: (fields, message) =>
    console.error(`avion-timeline: ${message}: ${Object.values(fields).map(String).join(": ")}`),
};

type Screen = Pick<NodeJS.WriteStream, "write"> & { readonly isTTY?: boolean };

/** Shows one line that changes on a terminal, and elsewhere a line each. */
export function createProgress(stream: Screen = process.stderr): { say(text: string): void; end(): void } {
  let shown = false;
  return {
    say(text) {
      shown = true;
      stream.write(stream.isTTY ? `\r\x1b[2K… ${text}` : `… ${text}\n`);
    },
    end() {
      if (shown && stream.isTTY) stream.write("\r\x1b[2K");
      shown = false;
    },
  };
}

const TERMINAL_EVERY_MS = SECOND / 5;
const LOG_EVERY_MS = 5 * SECOND;

/** Prints nothing in the first second, then at most one line per interval. */
export function createPacedProgress(stream: Screen = process.stderr, now: Clock = Date.now) {
  const progress = createProgress(stream);
  const everyMs = stream.isTTY ? TERMINAL_EVERY_MS : LOG_EVERY_MS;
  let next = now() + SECOND;
  return {
    say(text: () => string): void {
      if (now() < next) return;
      next = now() + everyMs;
      progress.say(text());
    },
    end: progress.end,
  };
}

export type Say = (text: () => string) => void;

/** Asks on a terminal: only yes is yes. Without a terminal, as in a script, resolves to true. */
export async function confirm(
  question: string,
  input: NodeJS.ReadableStream & { readonly isTTY?: boolean } = process.stdin,
  output: NodeJS.WritableStream = process.stderr,
): Promise<boolean> {
  if (!input.isTTY) return true;
  const lines = createInterface({ input, output });
  const answer = await new Promise<string>((resolve) => {
    // The end of the input and Ctrl-C are no.
    lines.once("close", () => resolve(""));
    lines.question(`${question} [y/N] `, resolve);
  });
  lines.close();
  return /^y(es)?$/i.test(answer.trim());
}
