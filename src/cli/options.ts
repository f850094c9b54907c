import { type Command, InvalidArgumentError, Option } from "commander";
import type { z } from "zod";
import { idFault } from "../kernel/ids.js";
import { sharedNow } from "../kernel/time.js";
import { FILTERS, RATE, SEQ } from "../operators/dead-letters/index.js";

export const JSON_OPTION = new Option("--json", "print JSON");

/** Sets the exit code that the work resolves to. The process is not ended, so that its whole output is written. */
export const exitWith =
  <Args extends unknown[]>(work: (...args: Args) => Promise<number>) =>
  async (...args: Args): Promise<void> => {
    process.exitCode = await work(...args);
  };

export function wholeNumber({
  min = 0,
  max,
}: {
  readonly min?: number;
  readonly max: number;
}): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`must be a whole number from ${min} to ${max}`);
  };
}

export function argumentOf<Output>(schema: z.ZodType<Output>): (value: unknown) => Output {
  return (value) => {
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    throw new InvalidArgumentError(result.error.issues.map(({ message }) => message).join("; "));
  };
}

const toNumber = (text: string): number => (/^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN);

export const parseRate = (text: string): number => argumentOf(RATE)(toNumber(text));
export const parseSeq = (text: string): number => argumentOf(SEQ)(toNumber(text));
/** Reads 15m, 2h, 7d (ago) or a date, as ms since the epoch. */
export const parseTime = (text: string): number => argumentOf(FILTERS.since.schema)(text);

export function parseUserId(text: string): string {
  const fault = idFault(text);
  if (fault) throw new InvalidArgumentError(fault);
  return text;
}

export const parseUserIds = (text: string, before: readonly string[] = []): string[] => [...before, parseUserId(text)];

/** Ends the command with a usage error if no event can be in the range; `end` is the option that names its end. */
export function refuseEmptyRange(
  command: Command,
  from: number,
  { end, to = sharedNow() }: { end: string; to?: number | undefined },
) {
  if (from >= to) command.error(`error: the range is empty: ${end} (default: now) must be later than its start`);
}
