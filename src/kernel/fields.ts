import type { z } from "zod";
import { invalid } from "./errors.js";
import { idFault } from "./ids.js";

/** PostgreSQL stores no NUL. */
export const storedIdFault = (id: string): string | undefined =>
  idFault(id) ?? (id.includes("\0") ? "must not contain NUL" : undefined);

export function readId(field: string, id: string): string {
  const fault = storedIdFault(id);
  if (fault !== undefined) throw invalid(field, fault);
  return id;
}

/** Counts Unicode code points. */
export function textFault(text: string, maxCharacters: number): string | undefined {
  // A code point takes at most two code units: a much longer text need not be counted.
  const isTooLong =
    text.length > maxCharacters && (text.length > 2 * maxCharacters || Array.from(text).length > maxCharacters);
  if (isTooLong) return `must have at most ${maxCharacters} characters`;
  if (text.includes("\0")) return "must not contain NUL";
  return text.isWellFormed() ? undefined : "is not well-formed Unicode";
}

export function readText(field: string, text: string, maxCharacters: number): string {
  const fault = textFault(text, maxCharacters);
  if (fault !== undefined) throw invalid(field, fault);
  return text;
}

/** Describes a field for documents; docs/integration.md has the same words. */
export const about = <Schema extends z.ZodType>(description: string, schema: Schema): Schema =>
  schema.meta({ description });

const KINDS: Readonly<Record<string, string>> = { int: "a whole number", object: "an object", array: "a list" };

/** Describes a fault of a value from outside, if its schema has no message for it. */
export const faultInWords: z.core.$ZodErrorMap = (issue) => {
  if (issue.code === "invalid_type" && issue.input === undefined) return "is missing";
  if (issue.code === "invalid_type") return `must be ${KINDS[issue.expected] ?? `a ${issue.expected}`}`;
  if (issue.code === "invalid_value") return `must be one of ${issue.values.join(", ")}`;
  if (issue.code === "too_small" && isNumber(issue.origin)) return `must be at least ${issue.minimum}`;
  if (issue.code === "too_big" && isNumber(issue.origin)) return `must be at most ${issue.maximum}`;
  if (issue.code === "too_small" && issue.origin === "string" && issue.minimum === 1) return "must not be empty";
  if (issue.code === "too_big" && issue.origin === "string") return `must have at most ${issue.maximum} characters`;
  return undefined;
};

const isNumber = (origin: string): boolean => origin === "number" || origin === "int";
