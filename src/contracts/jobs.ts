import { z } from "zod";
import { AppError } from "../kernel/errors.js";
import { encodeId, fingerprint } from "../kernel/ids.js";
import { parseJson } from "./events.js";

const job = z.object({
  action: z.enum(["add", "remove"]),
  event: z.enum(["drop_created", "drop_deleted", "ap_drop_received"]),
  drop_id: z.string(),
  user_id: z.string(),
  created_at: z.number(),
  /** When the event was admitted to the log, in ms since the epoch. */
  admitted_at: z.number(),
  /** The author's generation under which the followers were read. */
  generation: z.string(),
  user_ids: z.array(z.string()),
  /** Nobody is told: the event is history. */
  silent: z.boolean().optional(),
});

/** One chunk of a fan-out: a drop, what to do with it, and for whom. */
export type FanoutJob = z.output<typeof job>;

/** Understands the body of a `fanout.job.*` message; throws `invalid`. */
export function parseJob(bytes: Uint8Array): FanoutJob {
  const parsed = job.safeParse(parseJson(bytes));
  if (parsed.success) return parsed.data;
  throw new AppError(
    "invalid",
    parsed.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`).join("; "),
  );
}

/** Identifies a chunk by whom it is for, so that planning the same chunk again names it the same. */
export function chunkId(users: readonly string[]): string {
  return fingerprint(users.map(encodeId).join(","));
}

/** The `Nats-Msg-Id` of a job. */
export function jobMessageId(of: FanoutJob): string {
  return `${of.event}:${encodeId(of.drop_id)}:${chunkId(of.user_ids)}`;
}
