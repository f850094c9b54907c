import { expect, test } from "@jest/globals";
import { createParser } from "eventsource-parser";
import fc from "fast-check";
import { type Block, EventParser } from "../../../clients/typescript/src/parser.js";

interface Seen {
  readonly blocks: readonly Block[];
  readonly retries: readonly number[];
}

function parse(parts: readonly string[]): Seen {
  const retries: number[] = [];
  const parser = new EventParser((ms) => retries.push(ms));
  return { blocks: parts.flatMap((part) => [...parser.feed(part)]), retries };
}

/** Events as eventsource-parser reads them. It gives each event the id of its own block only. */
function expected(text: string): { readonly events: unknown[]; readonly retries: number[] } {
  const events: unknown[] = [];
  const retries: number[] = [];
  const parser = createParser({
    onEvent: ({ event = "message", data }) => void events.push({ event, data }),
    onRetry: (ms) => void retries.push(ms),
  });
  parser.feed(text);
  return { events, retries };
}

/** Cuts a text at each of these places. */
function cut(text: string, places: readonly number[]): string[] {
  const ends = [...new Set(places.map((place) => place % (text.length + 1)))].toSorted((a, b) => a - b);
  return [0, ...ends].map((start, index) => text.slice(start, ends[index] ?? text.length));
}

const end = fc.constantFrom("\n", "\r\n");
const value = fc.stringMatching(/^[ -~é→]{0,12}$/);
const line = fc.oneof(
  fc.tuple(fc.constantFrom("data", "event", "id", "other", "", "retry"), fc.constantFrom(":", ": ", ":  "), value),
  fc.tuple(fc.constant("retry"), fc.constant(": "), fc.nat(99_999).map(String)),
  fc.tuple(fc.constantFrom("data", "event"), fc.constant(""), fc.constant("")),
);
const stream = fc
  .array(fc.tuple(fc.oneof({ weight: 3, arbitrary: line }, { weight: 2, arbitrary: fc.constant(["", "", ""]) }), end))
  .map((lines) => lines.map(([parts, ended]) => parts.join("") + ended).join(""));

test("a stream that is cut anywhere is read as eventsource-parser reads it whole", () => {
  fc.assert(
    fc.property(stream, fc.array(fc.nat()), (text, places) => {
      // A carriage return at the end may be the first half of an end of a line.
      const whole = `${text}\n\n`;
      const { blocks, retries } = parse(cut(whole, places));
      const events = blocks.flatMap(({ event, data }) => (data === undefined ? [] : [{ event, data }]));
      expect({ events, retries }).toEqual(expected(whole));
    }),
    { numRuns: 500 },
  );
});

test("a position without an event moves the id, and a block that is not over does not", () => {
  const { blocks } = parse([": connected\nid: 1-a-b\n\nid: 2-a-b\nevent: new_drop\ndata: {}\n\nid: 3-a-b\n"]);
  expect(blocks).toEqual([
    { id: "1-a-b", event: "message", data: undefined },
    { id: "2-a-b", event: "new_drop", data: "{}" },
  ]);
});

test("a block without an id moves no position, and neither does an id with a null character", () => {
  const { blocks } = parse(["id: 1\ndata: 1\n\ndata: 2\n\nid: x\0y\ndata: 3\n\n"]);
  expect(blocks.map(({ id }) => id)).toEqual(["1", undefined, undefined]);
});

test("a block without an end is given up at a megabyte", () => {
  expect(() => parse(["data: ", "x".repeat(1_048_577)])).toThrow("an event is too long");
  expect(() => parse(Array.from({ length: 1_100 }, () => `data: ${"x".repeat(1_000)}\n`))).toThrow("too long");
  expect(() => parse(Array.from({ length: 1_100 }, () => `: ${"x".repeat(1_000)}\n`))).not.toThrow();
});
