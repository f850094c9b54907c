import { InvalidArgumentError } from "commander";
import type { z } from "zod";
import { FIELDS } from "../dead-letters/index.js";

export function parsedBy<Output>(schema: z.ZodType<Output>): (value: unknown) => Output {
  return (value) => {
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    throw new InvalidArgumentError(result.error.issues.map(({ message }) => message).join("; "));
  };
}

const numberIn = (text: string): number => (/^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN);

export const rateOf = (text: string): number => parsedBy(FIELDS.rate)(numberIn(text));
export const seqOf = (text: string): number => parsedBy(FIELDS.seq)(numberIn(text));
/** In ms since the epoch: 15m, 2h, 7d (ago), or a date. */
export const timeOf = (text: string): number => parsedBy(FIELDS.since)(text);
