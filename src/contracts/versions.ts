import { z } from "zod";

/** A number if that is exact, else its decimal digits: JSON numbers beyond 2^53 are not exact. */
export type Version = number | string;

const MAX_VERSION = 2n ** 63n - 1n;
const DIGITS = /^(?:0|[1-9]\d{0,18})$/;

/** Returns undefined for what is no integer of 0 to 2^63-1. */
export function versionOf(value: Version): Version | undefined {
  if (typeof value === "number") return Number.isSafeInteger(value) && value >= 0 ? value + 0 : undefined;
  if (!DIGITS.test(value) || BigInt(value) > MAX_VERSION) return undefined;
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

/** Is negative if `a` is the older one, and 0 for equal ones. */
export function compareVersions(a: Version, b: Version): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  const [first, other] = [BigInt(a), BigInt(b)];
  return first < other ? -1 : first > other ? 1 : 0;
}

const FAULT = "must be an integer of 0 to 9223372036854775807, as a number or a string";

export const version = z.union([z.number(), z.string()], { message: FAULT }).transform((value, context) => {
  const version = versionOf(value);
  if (version !== undefined) return version;
  context.addIssue({ code: "custom", message: FAULT });
  return z.NEVER;
});

// In a text value a quote is escaped, so that only the name of a field matches.
const LONG_VERSION = /("version"\s*:\s*)(\d{16,19})(?=\s*[,}])/g;

/** Makes long versions in a JSON text strings: the parser would round them. */
export const withExactVersions = (json: string): string => json.replace(LONG_VERSION, '$1"$2"');
