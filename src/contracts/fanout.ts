import { z } from "zod";
import { encodeId, fingerprint } from "../kernel/ids.js";
import { parseJson } from "./events.js";
import { dropId, understood, userId, userIds } from "./untrusted.js";

/** A job is for at most so many users. */
export const MAX_CHUNK_USERS = 5_000;

/** Names of generations are ours, and shorter. */
const MAX_GENERATION_CHARACTERS = 128;

const ms = z.number().int().nonnegative();

const job = z.object({
  action: z.enum(["add", "remove"]),
  event: z.enum(["drop_created", "drop_deleted", "ap_drop_received"]),
  drop_id: dropId,
  user_id: userId,
  created_at: ms,
  /** When the event was admitted to the log, in ms since the epoch. */
  admitted_at: ms,
  /** The author's generation under which the followers were read. */
  generation: z.string().max(MAX_GENERATION_CHARACTERS),
  user_ids: userIds(MAX_CHUNK_USERS),
  /** Nobody is told: the event is history. */
  silent: z.boolean().optional(),
});

/** One chunk of a fan-out: a drop, what to do with it, and for whom. */
export type FanoutJob = z.output<typeof job>;

/** Understands the body of a `fanout.job.*` message; throws `invalid`. */
export function parseJob(bytes: Uint8Array): FanoutJob {
  return understood(job, parseJson(bytes));
}

/** Identifies a chunk by whom it is for, so that planning the same chunk again names it the same. */
export function chunkId(users: readonly string[]): string {
  return fingerprint(users.map(encodeId).join(","));
}

/** The `Nats-Msg-Id` of a job. */
export function jobMessageId(of: FanoutJob): string {
  return `${of.event}:${encodeId(of.drop_id)}:${chunkId(of.user_ids)}`;
}

/** A notification on a user's stream. `event` is the name of the SSE event, the rest is its data. */
export type Notification =
  | { readonly event: "new_drop"; readonly drop_id: string; readonly created_at: number }
  | { readonly event: "drop_deleted"; readonly drop_id: string };

/** Body of `completed.fanout`. */
export interface FanoutCompleted {
  readonly event: string;
  readonly drop_id: string;
  readonly user_id: string;
  /** Users whose home timelines were meant. */
  readonly recipients: number;
  readonly chunks: number;
  /** All in ms since the epoch. */
  readonly created_at: number;
  readonly admitted_at: number;
  readonly landed_at: number;
  /** From creation to the last write, in ms. */
  readonly lag_ms: number;
}
