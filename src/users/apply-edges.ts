import type { Handler } from "../delivery/handler.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { spread } from "../kernel/ids.js";
import { createBatch } from "../kernel/sharing.js";
import { parseEdge } from "./edges.js";
import type { ApplyEdges, TracedEdge } from "./followers.sql.js";
import type { ObserveUsers } from "./observe.js";

interface ApplyDeps {
  readonly apply: ApplyEdges;
  readonly wakeRelay: () => void;
  readonly observe: Pick<ObserveUsers, "applied" | "listed">;
}

export interface Lane {
  readonly name: string;
  readonly batch: number;
  /** Batches at once; all edges of one followed user go into the same. */
  readonly atOnce: number;
}

/** Small batches, several at once: an edge waits for few others. */
export const NORMAL_LANE: Lane = { name: "calm", batch: 250, atOnce: 4 };

/** One large batch after the other: very many followers of one user are one update of the count. */
export const HOT_LANE: Lane = { name: "hot", batch: 2_000, atOnce: 1 };

/** Handles the stream EDGES: applies edges to the follower lists. The newest version of a pair wins, in any order. */
export function createApplyEdges({ apply, wakeRelay, observe }: ApplyDeps, lane: Lane): Handler {
  const run = async (edges: readonly TracedEdge[]): Promise<void> => {
    const changed = await apply(edges);
    observe.applied(lane.name, edges.length, changed);
    if (changed > 0) wakeRelay();
  };
  const batches = Array.from({ length: lane.atOnce }, () => createBatch(lane.batch, run));
  return async ({ body }) => {
    const { acceptedAt, ...edge } = parseEdge(body);
    const batch = batches[spread(edge.following) % batches.length] as (typeof batches)[number];
    await batch({ ...edge, traceparent: traceHeaders()["traceparent"] });
    if (acceptedAt !== undefined) observe.listed(lane.name, acceptedAt);
  };
}
