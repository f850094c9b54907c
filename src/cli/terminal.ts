import { createInterface } from "node:readline";
import { type Logger, silent } from "../kernel/logger.js";
import { type Clock, SECOND } from "../kernel/time.js";

/** Tells a person at a terminal what failed, and nothing else. */
export const toTerminal: Logger = {
  ...silent,
  error: (fields, message) =>
    console.error(`avion-timeline: ${message}: ${Object.values(fields).map(String).join(": ")}`),
};

/** Where progress is shown. */
type Screen = Pick<NodeJS.WriteStream, "write"> & { readonly isTTY?: boolean };

/** Shows what is going on: one line that changes on a terminal, a line each elsewhere. */
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

/** A line every few seconds is enough for a log; a terminal shows how it moves. */
const SAID_EVERY_MS = { terminal: SECOND / 5, elsewhere: 5 * SECOND } as const;

/** Shows how far long work is: nothing in the first second, and then now and again. */
export function createPacedProgress(
  stream: Screen = process.stderr,
  now: Clock = Date.now,
): {
  say(text: () => string): void;
  end(): void;
} {
  const progress = createProgress(stream);
  const every = stream.isTTY ? SAID_EVERY_MS.terminal : SAID_EVERY_MS.elsewhere;
  let next = now() + SECOND;
  return {
    say(text) {
      if (now() < next) return;
      next = now() + every;
      progress.say(text());
    },
    end: () => progress.end(),
  };
}

/** Asks on a terminal, where only yes is yes. Where nobody can be asked, as in a script, it is taken for granted. */
export async function confirm(
  question: string,
  input: NodeJS.ReadableStream & { readonly isTTY?: boolean } = process.stdin,
  output: NodeJS.WritableStream = process.stderr,
): Promise<boolean> {
  if (!input.isTTY) return true;
  const lines = createInterface({ input, output });
  const answer = await new Promise<string>((resolve) => {
    // Who ends the input or interrupts has not said yes.
    lines.once("close", () => resolve(""));
    lines.question(`${question} [y/N] `, resolve);
  });
  lines.close();
  return /^y(es)?$/i.test(answer.trim());
}
