import { z } from "zod";

export interface Variable {
  readonly name: string;
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
  z.string().regex(form, { message }).refine(hasPort, { message: "must have a port up to 65535" });

export const address = withPort(/^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$/, "must be host:port");

export const target = withPort(
  /^(dns:\/\/\/)?(\[[0-9a-fA-F:]+\]|[^:/\s@]+):\d{1,5}$/,
  "must be host:port or dns:///host:port",
);

const digits = (form: RegExp, message: string) => z.string().regex(form, { message }).transform(Number);

export const integer = (min: number, max: number) =>
  digits(/^\d+$/, "must be a whole number").refine((value) => value >= min && value <= max, {
    message: `must be between ${min} and ${max}`,
  });

export const factor = (max: number) =>
  digits(/^\d+(\.\d+)?$/, "must be a number").refine((value) => value > 0 && value <= max, {
    message: `must be above 0 and at most ${max}`,
  });

export const text = z.string().min(1, { message: "must not be empty" });

export const flag = z.enum(["true", "false"]).transform((value) => value === "true");
