import { readFileSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { temporaryFolder } from "./brokers.js";
import { eventually } from "./eventually.js";
import { type Service, startService } from "./service.js";
import { type Stack, startStack } from "./stack.js";

/** A file as it is drawn in one leg of a way, and the functions that are passed in it. */
export interface Drawn {
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
  /** Times it ran during the work, and in as much time without any. */
  readonly count: number;
  readonly idle: number;
}

interface Entry {
  readonly entered: string;
  /** From the nearest outwards. */
  readonly callers: readonly string[];
}

export interface Followed {
  readonly counted: readonly Counted[];
  readonly entries: readonly Entry[];
}

const DOCUMENT = "docs/architecture.md";

/** Lines like `   fanout/apply.ts   chunk, add` in the code block under the heading; a line with `══` ends a leg. */
export function readDrawing(heading: string): Drawn[] {
  const form = new RegExp(`^## ${heading}$.*?^\`\`\`\\n(.*?)^\`\`\`$`, "ms");
  const [, block = ""] = form.exec(readFileSync(DOCUMENT, "utf8")) ?? [];
  let leg = 0;
  return block.split("\n").flatMap((line) => {
    if (line.includes("══")) leg += 1;
    const [, indent = "", file = "", names = ""] = /^( *)([\w./-]+)\.ts +([\w#]+(?:, [\w#]+)*)/.exec(line) ?? [];
    return file === "" ? [] : [{ leg, file, indented: indent.length > 1, functions: names.split(", ") }];
  });
}

export const filesOf = (drawn: readonly Drawn[]): string[] => [...new Set(drawn.map(({ file }) => file))];

const functionsOf = (drawn: readonly Drawn[]): string[] =>
  drawn.flatMap(({ file, functions }) => functions.map((name) => `${file} ${name}`));

/** The files passed at least `times` times that are not left out of drawings. What runs mostly in the background is. */
export function filesPassed({ counted }: Followed, drawn: readonly Drawn[], times: number, notDrawn: RegExp): string[] {
  const files = filesOf(drawn);
  const passed = counted.filter(
    ({ file, count, idle }) =>
      (files.includes(file) ? count >= times : count - idle >= times && 2 * idle < count) && !notDrawn.test(file),
  );
  return [...new Set(passed.map(({ file }) => file))].sort();
}

/** The drawn functions that were not passed so often, or not entered. */
export function functionsMissed({ counted, entries }: Followed, drawn: readonly Drawn[], times: number): string[] {
  const passed = new Set(counted.filter(({ count }) => count >= times).map(({ file, name }) => `${file} ${name}`));
  const entered = new Set(entries.map((entry) => entry.entered));
  return functionsOf(drawn).filter((one) => !passed.has(one) || !entered.has(one));
}

/** The steps that were not entered in the drawn order. */
export function stepsMissed({ entries }: Followed, drawn: readonly Drawn[]): string[] {
  const missed: string[] = [];
  let at = -1;
  for (const step of functionsOf(drawn.filter(({ indented }) => !indented))) {
    const next = entries.findIndex(({ entered }, index) => index > at && entered === step);
    if (next === -1) missed.push(step);
    else at = next;
  }
  return missed;
}

/** Calls of a drawn file into one that is drawn above it. */
export function callsUpwards({ entries }: Followed, drawn: readonly Drawn[]): string[] {
  const files = filesOf(drawn);
  const isAbove = (caller: string, callee: string): boolean =>
    drawn.some(({ file, leg }, at) => {
      const below = drawn.findIndex((one, index) => index > at && one.leg === leg && one.file === callee);
      return file === caller && below > at;
    });
  const upwards = entries.flatMap(({ entered, callers }) => {
    const [file = ""] = entered.split(" ");
    const caller = callers.find((one) => one !== file && files.includes(one));
    return caller === undefined || isAbove(caller, file) ? [] : [`${caller} calls ${entered}`];
  });
  return [...new Set(upwards)];
}

/** Does the work so many times. */
export type Work = (times: number) => Promise<void>;

interface Way {
  readonly roles: string;
  readonly drawn: readonly Drawn[];
  readonly times: number;
  /** Prepares the work. */
  readonly open: (stack: Stack, service: Service) => Promise<Work>;
}

/** Follows work through a process that has all roles of the way. */
export async function follow({ roles, drawn, times, open }: Way): Promise<Followed> {
  const folder = await temporaryFolder("way");
  const file = join(folder, "trace");
  const preload = join(process.cwd(), "test/support/call-trace.mjs");
  const stack = await startStack({ service: false });
  try {
    const service = await startService({
      ...stack.serviceOptions,
      roles,
      // The modules as they were built, and not a bundle of them.
      command: ["--import", preload, join(process.cwd(), "dist/main.js"), "serve"],
      env: { CALL_TRACE_FILE: file, CALL_TRACE_FUNCTIONS: JSON.stringify(functionsOf(drawn)) },
    });
    stack.defer(() => service.stop());
    const work = await open(stack, service);
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
    await step(1);
    const started = performance.now();
    await work(times);
    const busy = await step<Counted[]>(2);
    // Functions that run in the background, in as much time.
    await pause(performance.now() - started);
    const idle = await step<Counted[]>(3);
    // A cached page may have expired: the second one is cached.
    await work(2);
    const entries = await step<Entry[]>(4);
    return { counted: withIdle(idle, busy), entries };
  } finally {
    await stack.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

function withIdle(idle: readonly Counted[], busy: readonly Counted[]): Counted[] {
  const key = ({ file, name, startOffset }: Counted): string => `${file} ${name} ${startOffset}`;
  const counts = new Map(idle.map((one) => [key(one), one.count]));
  return busy.map((one) => ({ ...one, idle: counts.get(key(one)) ?? 0 }));
}
