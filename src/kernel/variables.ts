import { z } from "zod";
import { DAY, HOUR, MINUTE, SECOND } from "./time.js";

export interface Variable {
  readonly name: string;
  /**
   * The former name is read for one version after the variable was renamed. If one variable has replaced several, the
   * schema gets an object of their values.
   */
  readonly former?: string | Readonly<Record<string, string>>;
  readonly schema: z.ZodType;
  readonly default?: string;
  readonly about: string;
}

export type Variables = Readonly<Record<string, Variable>>;

export type ConfigOf<V extends Variables> = {
  readonly [Name in keyof V]: z.output<V[Name]["schema"]> | (V[Name] extends { default: string } ? never : undefined);
};

export class ConfigError extends Error {
  constructor(readonly faults: readonly string[]) {
    super(`bad configuration:\n${faults.map((fault) => `  - ${fault}`).join("\n")}`);
  }
}

export const list = z.string().transform((value) =>
  value
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== ""),
);

export const nonEmptyList = list.refine((parts) => parts.length > 0, { message: "must not be empty" });

const hasPort = (value: string): boolean => Number(value.slice(value.lastIndexOf(":") + 1)) <= 65_535;

const withPort = (form: RegExp, message: string) =>
  z.string().regex(form, { message, abort: true }).refine(hasPort, { message: "must have a port up to 65535" });

export const address = withPort(/^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$/, "must be host:port");

export const target = withPort(
  /^(dns:\/\/\/)?(\[[0-9a-fA-F:]+\]|[^:/\s@]+):\d{1,5}$/,
  "must be host:port or dns:///host:port",
);

const digits = (form: RegExp, fits: (value: number) => boolean, message: string) =>
  z.string().regex(form, { message }).transform(Number).refine(fits, { message });

const wholeFrom = (min: number, max: number) => `a whole number from ${min} to ${max}`;

export const integer = (min: number, max: number) =>
  digits(/^\d+$/, (value) => value >= min && value <= max, `must be ${wholeFrom(min, max)}`);

export const share = digits(/^\d+(\.\d+)?$/, (value) => value <= 1, "must be a number from 0 to 1");

/** `off` becomes a number that no other is above. */
export const thresholdUpTo = (max: number) => {
  const error = `must be off, or ${wholeFrom(0, max)}`;
  return z.union([z.literal("off").transform(() => Number.POSITIVE_INFINITY), integer(0, max)], { error });
};

/** At most `most` within any period of `withinMs`. */
export interface Limit {
  readonly most: number;
  /** The time as it was given, such as 3h. */
  readonly within: string;
  readonly withinMs: number;
}

const UNITS: Readonly<Record<string, number>> = { s: SECOND, m: MINUTE, h: HOUR, d: DAY };
/** Redis stores one timestamp for each counted action: at most this many for a user at the limit. */
const MOST_COUNTED = 10_000;
const LONGEST_MS = 30 * DAY;

/** `off` becomes undefined. */
export const limit = z.string().transform((value, context): Limit | undefined => {
  if (value === "off") return undefined;
  const [, digits = "", within = "", length = "", unit = ""] = /^(\d+)\/((\d+)([smhd]))$/.exec(value) ?? [];
  const [most, withinMs] = [Number(digits), Number(length) * (UNITS[unit] ?? 0)];
  if (most >= 1 && most <= MOST_COUNTED && withinMs >= SECOND && withinMs <= LONGEST_MS)
    return { most, within, withinMs };
  context.addIssue(`must be off, or a number from 1 to ${MOST_COUNTED} and a time from 1s to 30d, such as 300/3h`);
  return z.NEVER;
});

export const factor = (max: number) =>
  digits(/^\d+(\.\d+)?$/, (value) => value > 0 && value <= max, `must be a number above 0, up to ${max}`);

export const text = z.string().min(1, { message: "must not be empty" });

export const flag = z.enum(["true", "false"]).transform((value) => value === "true");

export const onOff = z.enum(["on", "off"], { error: "must be on or off" }).transform((value) => value === "on");
