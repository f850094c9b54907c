import { z } from "zod";
import { parseFailpoints } from "../../kernel/failpoints.js";

/** Parts between commas. */
export const list = z.string().transform((text) =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== ""),
);
/** At least one part. */
export const nonEmptyList = list.refine((parts) => parts.length > 0, { message: "must not be empty" });
const hasPort = (value: string): boolean => Number(value.slice(value.lastIndexOf(":") + 1)) <= 65_535;
const portRule = { message: "must have a port up to 65535" };
/** Where to listen: host:port. */
export const address = z
  .string()
  .regex(/^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$/, { message: "must be host:port" })
  .refine(hasPort, portRule);
/** What gRPC connects to: host:port or dns:///host:port. */
export const target = z
  .string()
  .regex(/^(dns:\/\/\/)?(\[[0-9a-fA-F:]+\]|[^:/\s@]+):\d{1,5}$/, { message: "must be host:port or dns:///host:port" })
  .refine(hasPort, portRule);
/** A whole number within bounds. */
export const integer = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d+$/, { message: "must be a whole number" })
    .transform(Number)
    .refine((value) => value >= min && value <= max, { message: `must be between ${min} and ${max}` });
/** A number above 0, such as 0.25 or 4. */
export const factor = (max: number) =>
  z
    .string()
    .regex(/^\d+(\.\d+)?$/, { message: "must be a number" })
    .transform(Number)
    .refine((value) => value > 0 && value <= max, { message: `must be above 0 and at most ${max}` });

/** Any text but the empty one. */
export const text = z.string().min(1, { message: "must not be empty" });

/** Points at which tests interfere; see src/kernel/failpoints.ts. */
export const failpoints = text.transform((value, context) => {
  try {
    return parseFailpoints(value);
  } catch (error) {
    context.addIssue({ code: "custom", message: (error as Error).message });
    return z.NEVER;
  }
});

/** A switch. */
export const flag = z.enum(["true", "false"]).transform((value) => value === "true");
