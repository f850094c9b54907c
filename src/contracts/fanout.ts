import { z } from "zod";
import { about } from "../kernel/fields.js";
import { encodeId, fingerprint } from "../kernel/ids.js";
import { parseJson } from "./events.js";
import { dropId, understood, userId, userIds } from "./untrusted.js";
import { version } from "./versions.js";

export const MAX_CHUNK_USERS = 5_000;

/** Maximum size of the user ids of a job, in bytes of JSON. */
export const MAX_JOB_BYTES = 512 * 1024;
/** Bytes of a message reserved for its headers; a dead letter has the most. */
export const HEADER_ROOM = 16 * 1024;
/** A NATS with a smaller `max_payload` takes no full job. */
export const LEAST_MAX_PAYLOAD = MAX_JOB_BYTES + HEADER_ROOM;

const MAX_GENERATION_CHARACTERS = 128;

/** The tiers part a tiered author's followers, in the order in which their homes are written. */
export const HOME_TIERS = ["connected", "recent", "rest"] as const;
export type HomeTier = (typeof HOME_TIERS)[number];

const ms = z.number().int().nonnegative();

const job = z.object({
  action: z.enum(["add", "remove"]),
  event: z.enum(["drop_created", "drop_deleted", "ap_drop_received"]),
  drop_id: dropId,
  user_id: userId,
  created_at: ms,
  /** Of a repost. */
  repost_of: dropId.optional(),
  repost_author: userId.optional(),
  /** Of a reply to somebody else: the parent's author. */
  reply_to_author: userId.optional(),
  /** True: only followers may see the drop, some of them or all. */
  for_followers: z.boolean().optional(),
  admitted_at: ms,
  generation: z.string().max(MAX_GENERATION_CHARACTERS),
  user_ids: userIds(MAX_CHUNK_USERS),
  silent: z.boolean().optional(),
  /** In an addition its users pull the drop, so that homes are left alone; in a removal the author's timeline had it. */
  pulled: z.boolean().optional(),
  tier: z.enum(HOME_TIERS).optional(),
});

export type FanoutJob = z.output<typeof job>;

export function parseJob(bytes: Uint8Array): FanoutJob {
  return understood(job, parseJson(bytes));
}

export const MAX_JOB_EDGES = 250;

const edgeJob = z.object({
  following_id: userId,
  /** The admission is that of the oldest change. */
  admitted_at: ms,
  edges: z.array(z.object({ follower_id: userId, version, follows: z.boolean() })).max(MAX_JOB_EDGES),
});

/** A job has changed edges of one followed user. */
export type EdgeJob = z.output<typeof edgeJob>;

export function parseEdgeJob(bytes: Uint8Array): EdgeJob {
  return understood(edgeJob, parseJson(bytes));
}

export function edgeJobMessageId({ following_id, edges }: EdgeJob): string {
  const changes = edges.map(({ follower_id, version, follows }) => `${encodeId(follower_id)}:${version}:${follows}`);
  return `edges:${encodeId(following_id)}:${fingerprint(changes.join(","))}`;
}

/** Planning the same chunk again names it the same; one that goes another way is another. */
export function chunkId({ user_ids, pulled, tier }: Pick<FanoutJob, "user_ids" | "pulled" | "tier">): string {
  return `${tier ? `${tier}:` : ""}${fingerprint(user_ids.map(encodeId).join(","))}${pulled ? ":pulled" : ""}`;
}

export const tierOfChunk = (chunk: string): HomeTier | undefined =>
  HOME_TIERS.find((tier) => chunk.startsWith(`${tier}:`));

export function jobMessageId(job: FanoutJob): string {
  return `${job.event}:${encodeId(job.drop_id)}:${chunkId(job)}`;
}

const tier = z.object({
  recipients: z.number(),
  landed_at: about("ms since the epoch; null: nobody is in the tier", z.number().nullable()),
});

/** Body of `completed.fanout`, and of the checks of publications. */
export const FANOUT_COMPLETED = z
  .object({
    event: about("the event that is applied", z.string()),
    drop_id: z.string(),
    user_id: about("the author; empty if unknown", z.string()),
    recipients: about("number of homes", z.number()),
    chunks: about("number of pages of followers", z.number()),
    created_at: about("of the drop, ms since the epoch; of a deletion that of its admission", z.number()),
    admitted_at: about("ms since the epoch", z.number()),
    landed_at: about("ms since the epoch", z.number()),
    lag_ms: about("from `created_at` to `landed_at`", z.number()),
    tiers: about("of a tiered author only", z.record(z.enum(HOME_TIERS), tier)).optional(),
  })
  .meta({ description: "A drop or a deletion is in all its timelines" });

export type FanoutCompleted = Readonly<z.output<typeof FANOUT_COMPLETED>>;
export type Tiers = Readonly<Record<HomeTier, Readonly<z.output<typeof tier>>>>;
