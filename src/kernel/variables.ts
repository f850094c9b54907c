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
const portRule = { message: "must have a port up to 65535" };

export const address = z
  .string()
  .regex(/^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$/, { message: "must be host:port" })
  .refine(hasPort, portRule);

export const target = z
  .string()
  .regex(/^(dns:\/\/\/)?(\[[0-9a-fA-F:]+\]|[^:/\s@]+):\d{1,5}$/, { message: "must be host:port or dns:///host:port" })
  .refine(hasPort, portRule);

export const integer = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d+$/, { message: "must be a whole number" })
    .transform(Number)
    .refine((value) => value >= min && value <= max, { message: `must be between ${min} and ${max}` });

export const factor = (max: number) =>
  z
    .string()
    .regex(/^\d+(\.\d+)?$/, { message: "must be a number" })
    .transform(Number)
    .refine((value) => value > 0 && value <= max, { message: `must be above 0 and at most ${max}` });

export const text = z.string().min(1, { message: "must not be empty" });

export const flag = z.enum(["true", "false"]).transform((value) => value === "true");
