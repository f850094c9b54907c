import { SECOND } from "../kernel/time.js";

/** Shows what is going on: one line that changes on a terminal, a line each elsewhere. */
export function createProgress(stream: NodeJS.WriteStream = process.stderr): { say(text: string): void; end(): void } {
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
export function createPacedProgress(stream: NodeJS.WriteStream = process.stderr): {
  say(text: () => string): void;
  end(): void;
} {
  const progress = createProgress(stream);
  const every = stream.isTTY ? SAID_EVERY_MS.terminal : SAID_EVERY_MS.elsewhere;
  let next = Date.now() + SECOND;
  return {
    say(text) {
      if (Date.now() < next) return;
      next = Date.now() + every;
      progress.say(text());
    },
    end: () => progress.end(),
  };
}
