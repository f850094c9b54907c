import { z } from "zod";
import { ANALYSIS_TYPES, MEASURES } from "../../contracts/analysis.js";
import { PAGE_LIMIT } from "../../contracts/timeline-pages.js";

const time = z.iso.datetime().meta({ description: "RFC 3339, UTC" });
const uuid = z.uuid();
const statusUrl = z.string().meta({ format: "uri-reference" });

const measure = z.record(z.string(), z.unknown());
const results = z
  .object({
    version: z.string().meta({ description: "Version of the formulas" }),
    posts: z.int().min(0).meta({ description: "Posts that the results rest on" }),
    skipped: z.int().min(1).optional().meta({
      description: "Posts that were left out because they could not be read; left out itself where there are none",
    }),
    from: time.optional(),
    to: time.optional(),
    ...Object.fromEntries(MEASURES.map((name) => [name, measure.optional()])),
  })
  .meta({ description: "The measures that were asked for, by name" });

const analysis = z.object({
  analysis_id: uuid,
  did: z.string(),
  type: z.enum(ANALYSIS_TYPES),
  status: z.enum(["queued", "processing", "completed", "failed"]),
  requested_at: time,
  estimated_completion: time.optional(),
  started_at: time.optional(),
  completed_at: time.optional(),
  cached: z.boolean().optional(),
  results: results.optional(),
  error: z.string().optional(),
});

const accepted = z.object({
  analysis_id: uuid,
  status: z.literal("queued"),
  estimated_completion: time,
  status_url: statusUrl,
});

const nextCursor = z.string().nullable().meta({ description: "Of the next page; null: the end" });

const analyses = z.object({
  analyses: z.array(analysis).meta({ description: "The newest first" }),
  next_cursor: nextCursor,
});

const transaction = z.object({
  event_id: uuid,
  amount: z.number(),
  multiplier: z.number(),
  reason: z.string(),
  earned_at: time,
});

const rewards = z.object({
  user_id: z.string(),
  total: z.number().meta({ description: "The sum of all transactions" }),
  transactions: z.array(transaction).meta({ description: "The newest first" }),
  next_cursor: nextCursor,
});

const problem = z
  .object({
    type: z.literal("about:blank"),
    title: z.string(),
    status: z.int(),
    detail: z.string().optional(),
    errors: z
      .array(z.object({ field: z.string(), detail: z.string() }))
      .optional()
      .meta({ description: "Every wrong field of the body, the query or the headers" }),
  })
  .meta({ description: "RFC 9457" });

const health = z.object({ status: z.literal("ok") }).meta({ description: "The process is alive" });

const readiness = z
  .object({
    status: z.enum(["ready", "waiting"]),
    waiting: z.array(z.string()).meta({ description: "The reasons why it is not ready" }),
  })
  .meta({ description: "Whether the process can serve" });

const MAX_CURSOR = 256;

export const PAGE = z.object({
  limit: PAGE_LIMIT,
  cursor: z.string().max(MAX_CURSOR).optional(),
});

/** The keys are the names in the OpenAPI document. */
export const ANSWERS = {
  Accepted: accepted,
  Analysis: analysis,
  Results: results,
  Analyses: analyses,
  Rewards: rewards,
  Problem: problem,
  Health: health,
  Readiness: readiness,
} as const;
