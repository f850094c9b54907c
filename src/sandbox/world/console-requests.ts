import { z } from "zod";
import { idFault } from "../../kernel/ids.js";
import { FAULT_CODES, FAULT_SERVICES } from "./faults.js";
import { invalid } from "./world-error.js";

/** In the words of the events. */
const VISIBILITIES = ["public", "unlisted", "followers", "direct"] as const;

const id = z.string().superRefine((value, context) => {
  const fault = idFault(value);
  if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
});

const codeName = z.enum(Object.keys(FAULT_CODES) as [keyof typeof FAULT_CODES]);

/** The bodies and queries of the console's routes. */
export const sessionRequest = z.strictObject({ user: id });

export const timelineRequest = z.object({ user: id, max_id: z.string().max(1_024).default("") });

export const usersRequest = z.object({
  prefix: z.string().max(128).default(""),
  limit: z.coerce.number().int().min(1).max(1_000).default(400),
});

export const dropsRequest = z.strictObject({
  user: id,
  visibility: z.enum(VISIBILITIES).default("public"),
  recipients: z.array(id).max(20).default([]),
  body: z.string().max(5_000).default(""),
  /** How many at once. */
  count: z.number().int().min(1).max(100).default(1),
});

export const followRequest = z.strictObject({ follower_id: id, following_id: id });

export const faultRequest = z.strictObject({
  service: z.enum(FAULT_SERVICES),
  method: z.string().min(1).max(64).optional(),
  user_id: id.optional(),
  code: codeName.default("UNAVAILABLE"),
  delay_ms: z.number().int().min(0).max(60_000).optional(),
});

/** Reads a request by its schema; a refusal names the first field at fault. */
export function parse<T extends z.ZodType>(schema: T, value: unknown): z.output<T> {
  const result = schema.safeParse(value ?? {});
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const unknownKey = issue?.code === "unrecognized_keys" ? issue.keys[0] : undefined;
  const field = [...(issue?.path ?? []), ...(unknownKey === undefined ? [] : [unknownKey])].join(".");
  throw invalid(
    field === "" ? "body" : field,
    unknownKey === undefined ? (issue?.message ?? "is invalid") : "is not a field",
  );
}
