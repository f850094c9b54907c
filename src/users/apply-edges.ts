import type { Handler } from "../delivery/handler.js";
import { traceHeaders } from "../delivery/traced.js";
import { createBatch } from "../kernel/batch.js";
import { parseEdge } from "./edge-message.js";
import type { ApplyEdges, ObserveUsers, TracedEdge } from "./ports.js";

/** What edges are applied with. */
export interface ApplyDeps {
  readonly apply: ApplyEdges;
  /** Tells the relay that there is something to publish. */
  readonly wakeRelay: () => void;
  readonly observe: Pick<ObserveUsers, "applied" | "listed">;
}

/** How edges of a lane wait for each other. */
export interface Lane {
  readonly name: string;
  /** Edges applied in one statement. */
  readonly batch: number;
  /** Batches at once; edges of one followed user are always in the same. */
  readonly atOnce: number;
}

/** Small batches, several at once: an edge waits for few others. */
export const CALM_LANE: Lane = { name: "calm", batch: 250, atOnce: 4 };

/** One large batch after the other: very many followers of one user are one change of the count. */
export const HOT_LANE: Lane = { name: "hot", batch: 2_000, atOnce: 1 };

/**
 * Makes the handler of the stream EDGES that applies edges to the follower lists. The newest version of a pair wins,
 * whatever the order; what is as old as what is applied, or older, is done.
 *
 * It rejects with an AppError: `invalid` for a message that cannot be understood, `unavailable` while the database is away.
 */
export function createApplyEdges({ apply, wakeRelay, observe }: ApplyDeps, lane: Lane): Handler {
  const run = async (edges: readonly TracedEdge[]): Promise<void> => {
    const changed = await apply(edges);
    observe.applied(lane.name, edges.length, changed);
    if (changed > 0) wakeRelay();
  };
  const batches = Array.from({ length: lane.atOnce }, () => createBatch(lane.batch, run));
  return async ({ body }) => {
    const { acceptedAt, ...edge } = parseEdge(body);
    const batch = batches[hashOf(edge.following) % batches.length] as (typeof batches)[number];
    await batch({ ...edge, traceparent: traceHeaders()["traceparent"] });
    if (acceptedAt !== undefined) observe.listed(lane.name, acceptedAt);
  };
}

/** FNV-1a over UTF-16 units: spreads users over batches, nothing more. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
