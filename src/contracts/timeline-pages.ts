import { z } from "zod";
import { SHOWN_DROP } from "./shown-drops.js";

/** Pages of these are read over gRPC and over HTTP. */
export const TIMELINES = ["home", "local", "global"] as const;
export type TimelineName = (typeof TIMELINES)[number];

/** A page of a list names the list, too. */
export const PAGED_TIMELINES = [...TIMELINES, "list"] as const;
export type PagedTimeline = (typeof PAGED_TIMELINES)[number];

export const timelinePath = (name: string): string => `/api/v1/timelines/${name}`;

export const listPath = (list: string): string => timelinePath(`list/${list}`);

export const DEFAULT_LIMIT = 20;
export const MAX_LIMIT = 100;
/** A token holds an id of up to 128 bytes as base64url, and its time. */
export const MAX_CURSOR_CHARS = 256;

const cursor = (about: string) => z.string().max(MAX_CURSOR_CHARS).optional().meta({ description: about });

/** The length of a page in the query of any list over HTTP. */
export const PAGE_LIMIT = z.coerce
  .number({ message: `must be a whole number from 1 to ${MAX_LIMIT}` })
  .int()
  .min(1)
  .max(MAX_LIMIT)
  .default(DEFAULT_LIMIT);

/** Parts that a page over HTTP may have besides ids. */
const EXPANSIONS = ["drops"] as const;

/** The query of a page over HTTP. The three cursors exclude each other. */
export const TIMELINE_QUERY = z.object({
  limit: PAGE_LIMIT,
  max_id: cursor("Only drops older than this one: next_max_id of a page, or an id"),
  min_id: cursor("The drops next newer than this one: prev_min_id of a page, or an id"),
  since_id: cursor("Only drops newer than this one, from the newest down"),
  with_newer: z
    .enum(["true", "false"])
    .default("false")
    .meta({ description: "true: the page says how many entries are newer than the caller's position" }),
  expand: z.enum(EXPANSIONS).optional().meta({ description: "drops: each item has its drop" }),
});

const ITEM = z.object({
  drop_id: z.string(),
  created_at: z.number().int().meta({ description: "ms since the epoch" }),
  repost_of: z.string().meta({ description: "The original, if the drop is a repost in a home; else empty" }),
  reposted_by: z.array(z.string()).meta({
    description: "Of a repost: its author, and up to two more whose reposts of the same drop the page leaves out",
  }),
  drop: SHOWN_DROP.optional().meta({
    description: "With expand=drops: the drop as GetDrops gives it to the caller, with its state",
  }),
});

/** A page over HTTP: GetTimelineResponse as JSON. */
export const TIMELINE_PAGE = z
  .object({
    drop_ids: z.array(z.string()).meta({ description: "The newest first" }),
    has_more: z.boolean().meta({ description: "There are more drops in the direction asked for" }),
    next_max_id: z.string().meta({ description: "Hand back as max_id for the next older page" }),
    prev_min_id: z.string().meta({ description: "Hand back as min_id for the next newer page" }),
    degraded: z.boolean().meta({ description: "The page may be incomplete, or without its drops: a server failed" }),
    newer: z.number().int().optional().meta({
      description: "With with_newer=true: how many entries are newer than the caller's position, up to 100",
    }),
    items: z.array(ITEM).meta({ description: "One for each of drop_ids, in the same order" }),
  })
  .meta({ description: "A page of a timeline" });
