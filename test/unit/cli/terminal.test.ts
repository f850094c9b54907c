import { PassThrough } from "node:stream";
import { expect, test } from "@jest/globals";
import { confirm, createPacedProgress } from "../../../src/cli/terminal.js";

/** A stream that remembers what was written, and a clock that stands until it is moved. */
function scene(isTTY: boolean) {
  const written: string[] = [];
  let time = 1_000_000;
  const stream = { isTTY, write: (text: string | Uint8Array) => written.push(String(text)) > 0 };
  const progress = createPacedProgress(stream, () => time);
  const say = (text: string, afterMs: number): void => {
    time += afterMs;
    progress.say(() => text);
  };
  return { written, say, end: progress.end };
}

test("no progress is shown in the first second", () => {
  for (const isTTY of [true, false]) {
    const { written, say, end } = scene(isTTY);
    say("1 of 9", 0);
    say("2 of 9", 999);
    end();
    expect(written).toEqual([]);
  }
});

test("on a terminal one line changes five times a second and is removed at the end", () => {
  const { written, say, end } = scene(true);
  say("1 of 9", 1_000);
  say("2 of 9", 199);
  say("3 of 9", 1);
  end();
  end();
  expect(written).toEqual(["\r\x1b[2K… 1 of 9", "\r\x1b[2K… 3 of 9", "\r\x1b[2K"]);
});

test("without a terminal progress is a line every five seconds", () => {
  const { written, say, end } = scene(false);
  say("1 of 9", 1_000);
  say("2 of 9", 4_999);
  say("3 of 9", 1);
  end();
  expect(written).toEqual(["… 1 of 9\n", "… 3 of 9\n"]);
});

/** Somebody at a terminal who answers, or ends the input without. */
async function asked(answer: string | undefined): Promise<{ yes: boolean; shown: string }> {
  const input = Object.assign(new PassThrough(), { isTTY: true });
  const output = new PassThrough();
  const answered = confirm("Delete 3 dead letters for good?", input, output);
  if (answer === undefined) input.end();
  else input.write(`${answer}\n`);
  return { yes: await answered, shown: String(output.read()) };
}

test.each<[string | undefined, boolean]>([
  ["y", true],
  [" YES ", true],
  ["", false],
  ["n", false],
  ["yesterday", false],
  [undefined, false],
])("the answer %j means %j", async (answer, yes) => {
  const said = await asked(answer);
  expect(said.yes).toBe(yes);
  expect(said.shown).toContain("Delete 3 dead letters for good? [y/N] ");
});

test("without a terminal the answer is yes", async () => {
  const output = new PassThrough();
  expect(await confirm("Delete it?", new PassThrough(), output)).toBe(true);
  expect(output.read()).toBeNull();
});
