import { InvalidArgumentError } from "commander";
import type { z } from "zod";
import { FIELDS } from "../dead-letters/index.js";

export function argumentOf<Output>(schema: z.ZodType<Output>): (value: unknown) => Output {
  return (value) => {
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    throw new InvalidArgumentError(result.error.issues.map(({ message }) => message).join("; "));
  };
}

const toNumber = (text: string): number => (/^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN);

export const parseRate = (text: string): number => argumentOf(FIELDS.rate)(toNumber(text));
export const parseSeq = (text: string): number => argumentOf(FIELDS.seq)(toNumber(text));
/** In ms since the epoch: 15m, 2h, 7d (ago), or a date. */
export const parseTime = (text: string): number => argumentOf(FIELDS.since)(text);
