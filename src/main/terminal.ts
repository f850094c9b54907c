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
