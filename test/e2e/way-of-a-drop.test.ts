import { readFileSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { beforeAll, expect, test } from "@jest/globals";
import { temporaryFolder } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { startService } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { startStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";

/** A file as it is drawn in one leg of the way, and the functions that a drop passes in it. */
interface Drawn {
  readonly leg: number;
  readonly file: string;
  /** Drawn under the file that calls it: its place in time is not told. */
  readonly indented: boolean;
  readonly functions: readonly string[];
}

interface Counted {
  readonly file: string;
  readonly name: string;
  readonly startOffset: number;
  /** Times it ran while drops passed, and in as much time without any. */
  readonly count: number;
  readonly idle: number;
}

function withIdle(idle: readonly Counted[], busy: readonly Counted[]): Counted[] {
  const key = ({ file, name, startOffset }: Counted): string => `${file} ${name} ${startOffset}`;
  const counts = new Map(idle.map((one) => [key(one), one.count]));
  return busy.map((one) => ({ ...one, idle: counts.get(key(one)) ?? 0 }));
}

interface Entry {
  readonly entered: string;
  /** From the nearest outwards. */
  readonly callers: readonly string[];
}

const DOCUMENT = "docs/architecture.md";
const MAX_FILES = 25;
const DROPS = 20;
/**
 * Pure helpers, shared facts, telemetry, what follows the completion, and what compares the log with the upstreams: not
 * drawn, as docs/architecture.md says.
 */
const NOT_DRAWN =
  /^(kernel|contracts|gen)\/|^delivery\/telemetry$|^platform\/active-context$|(^|\/)observe$|^consistency\/(audit|restored)\/|^platform\/nats\/(ask|read-log|wire)$/;

const drawn = readDrawing(readFileSync(DOCUMENT, "utf8"));
const files = [...new Set(drawn.map(({ file }) => file))];
const functionsOf = (list: readonly Drawn[]): string[] =>
  list.flatMap(({ file, functions }) => functions.map((name) => `${file} ${name}`));

let counted: readonly Counted[];
let entries: readonly Entry[];

beforeAll(async () => {
  ({ counted, entries } = await follow(functionsOf(drawn)));
}, 180_000);

test("the drawing has at most 25 files", () => {
  expect(files.length).toBeGreaterThan(10);
  expect(files.length).toBeLessThanOrEqual(MAX_FILES);
});

test("a drop passes the drawn files and no others", () => {
  const other = (file: string): boolean => !files.includes(file);
  const passed = counted.filter(
    ({ file, count, idle }) => count - (other(file) ? idle : 0) >= DROPS && !NOT_DRAWN.test(file),
  );
  expect([...new Set(passed.map(({ file }) => file))].sort()).toEqual([...files].sort());
});

test("a drop passes every drawn function", () => {
  const passed = new Set(counted.filter(({ count }) => count >= DROPS).map(({ file, name }) => `${file} ${name}`));
  expect(functionsOf(drawn).filter((one) => !passed.has(one))).toEqual([]);
  const entered = new Set(entries.map((entry) => entry.entered));
  expect(functionsOf(drawn).filter((one) => !entered.has(one))).toEqual([]);
});

test("a drop passes the steps in the drawn order", () => {
  const missed: string[] = [];
  let at = -1;
  for (const step of functionsOf(drawn.filter(({ indented }) => !indented))) {
    const next = entries.findIndex(({ entered }, index) => index > at && entered === step);
    if (next === -1) missed.push(step);
    else at = next;
  }
  expect(missed).toEqual([]);
});

test("files are entered from above: a drawn file never calls one that is drawn above it", () => {
  const upwards = entries.flatMap(({ entered, callers }) => {
    const [file = ""] = entered.split(" ");
    const caller = callers.find((one) => one !== file && files.includes(one));
    return caller === undefined || isAbove(caller, file) ? [] : [`${caller} calls ${entered}`];
  });
  expect([...new Set(upwards)]).toEqual([]);
});

function isAbove(caller: string, callee: string): boolean {
  return drawn.some(({ file, leg }, at) => {
    const below = drawn.findIndex((one, index) => index > at && one.leg === leg && one.file === callee);
    return file === caller && below > at;
  });
}

/** Lines like `   fanout/apply.ts   chunk, add` in the code block under the heading; a line with `══` ends a leg. */
function readDrawing(document: string): Drawn[] {
  const [, block = ""] = /^## The way of a drop$.*?^```\n(.*?)^```$/ms.exec(document) ?? [];
  let leg = 0;
  return block.split("\n").flatMap((line) => {
    if (line.includes("══")) leg += 1;
    const [, indent = "", file = "", names = ""] = /^( *)([\w./-]+)\.ts +([\w#]+(?:, [\w#]+)*)/.exec(line) ?? [];
    return file === "" ? [] : [{ leg, file, indented: indent.length > 1, functions: names.split(", ") }];
  });
}

/** Follows drops through a process that has all the roles of the way. */
async function follow(functions: readonly string[]): Promise<{ counted: Counted[]; entries: Entry[] }> {
  const folder = await temporaryFolder("way");
  const file = join(folder, "trace");
  const preload = join(process.cwd(), "test/support/call-trace.mjs");
  const stack = await startStack({ service: false });
  try {
    const { world } = stack;
    const service = await startService({
      ...stack.serviceOptions,
      roles: "bridge,fanout,gateway",
      // The modules as they were built, and not a bundle of them.
      command: ["--import", preload, join(process.cwd(), "dist/main.js"), "serve"],
      env: { CALL_TRACE_FILE: file, CALL_TRACE_FUNCTIONS: JSON.stringify(functions) },
    });
    stack.defer(() => service.stop());
    world.follow("bob", "alice");
    const stream = await openEvents(service.httpUrl, "bob");
    let drops = 0;
    const post = async (count: number): Promise<void> => {
      for (let index = 0; index < count; index++) {
        const drop = {
          drop_id: `way-${++drops}`,
          user_id: "alice",
          visibility: "public",
          created_at: Date.now(),
        } as const;
        world.post(drop);
        await stack.publish(created(drop));
        await eventually(() => stream.drops().includes(drop.drop_id), "the drop is in the stream", 60_000);
      }
    };
    const step = async <T>(number: number): Promise<T> => {
      service.signal("SIGUSR2");
      let found: T | undefined;
      const answered = async (): Promise<boolean> => {
        // It may be half written.
        found = await readFile(`${file}.${number}`, "utf8")
          .then((text) => JSON.parse(text) as T)
          .catch(() => undefined);
        return found !== undefined;
      };
      await eventually(answered, "the process answers", 60_000);
      return found as T;
    };
    // The first drop reads the followers, which are cached then.
    await post(3);
    await step(1);
    const started = performance.now();
    await post(DROPS);
    const busy = await step<Counted[]>(2);
    // Functions that run in the background, in as much time.
    await pause(performance.now() - started);
    const idle = await step<Counted[]>(3);
    await post(1);
    const entries = await step<Entry[]>(4);
    return { counted: withIdle(idle, busy), entries };
  } finally {
    await stack.stop();
    await rm(folder, { recursive: true, force: true });
  }
}
