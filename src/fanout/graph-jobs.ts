import { isEdge, isRelation, parseStored } from "../contracts/events.js";
import { type EdgeJob, MAX_JOB_EDGES, parseEdgeJob } from "../contracts/fanout.js";
import type { Delivery, Handlers } from "../delivery/handler.js";
import { allOf, chunked, grouped } from "../kernel/concurrency.js";
import { SECOND } from "../kernel/time.js";
import type { FanoutDeps } from "./deps.js";
import { type AdmittedEdge, createApplyEdges } from "./graph.js";
import { isRedriven } from "./plan.js";
import { type AdmittedRelation, createApplyRelations } from "./relations.js";

/** A followed user with more edges in a batch is hot, a follower with more is busy. */
const FEW_EDGES = 100;
/** The drops of authors whose edges are handled together are waited for so long. */
const TIMEOUT_MS = SECOND / 2;

type GraphDeps = FanoutDeps & {
  /** Resolves when a batch of jobs may begin. */
  readonly throttle: () => Promise<void>;
};

/**
 * Handles `graph.*` and `fanout.edges.*`. A batch in which one user gets very many followers shows that edges wait: those
 * of this user become jobs, so that the edges of others do not wait for them. Those of a follower of very many users are
 * applied beside the others, and the next batch waits for the others only.
 */
export function createGraphHandlers(deps: GraphDeps): Readonly<Record<"graph" | "hotGraph", Handlers>> {
  const { queueEdges } = deps;
  const applyEdges = createApplyEdges(deps);
  const applyRelations = createApplyRelations(deps);
  return {
    graph: {
      single: async (delivery) => {
        const { edges, relations } = changesOf([delivery]);
        await applyRelations(relations);
        await applyEdges([...edges.values()]);
      },
      // Relations come first: no page may show what they hide, and they wait for no upstream.
      batch: async (deliveries, { beginNext }) => {
        const { edges, relations } = changesOf(deliveries);
        await applyRelations(relations);
        const { few, busy, jobs } = divided([...edges.values()]);
        // A refusal of jobs comes while edges are still written: their writes must not follow those of the next attempt.
        const late = await allOf([
          applyEdges(few, TIMEOUT_MS).finally(beginNext),
          applyEdges(busy, TIMEOUT_MS),
          queueEdges(jobs),
        ]);
        const left = new Set([...late[0], ...late[1]]);
        return deliveries.filter((delivery) => left.has(edges.get(delivery) as AdmittedEdge));
      },
    },
    hotGraph: createHotGraph(deps),
  };
}

function createHotGraph(deps: GraphDeps): Handlers {
  const { throttle, untilCovered } = deps;
  const applyYielding = createApplyEdges({ ...deps, yields: true });
  return {
    single: async (delivery, { stopping }) => {
      const job = parseEdgeJob(delivery.body);
      // A job that was redriven waits, as in jobs.ts.
      if (isRedriven(delivery)) await untilCovered?.(job.admitted_at, stopping);
      await applyYielding(edgesIn(job));
    },
    batch: async (deliveries) => {
      await throttle();
      const jobs = deliveries.map((delivery) => (isRedriven(delivery) ? [] : edgesIn(parseEdgeJob(delivery.body))));
      const left = new Set(await applyYielding(jobs.flat(), TIMEOUT_MS));
      return deliveries.filter((delivery, at) => isRedriven(delivery) || jobs[at]?.some((edge) => left.has(edge)));
    },
  };
}

function changesOf(deliveries: readonly Delivery[]) {
  const edges = new Map<Delivery, AdmittedEdge>();
  const relations: AdmittedRelation[] = [];
  for (const delivery of deliveries) {
    const { subject, body, time: admittedAt } = delivery;
    const event = parseStored(subject, body, admittedAt);
    if (isRelation(event)) relations.push({ event, admittedAt });
    else if (isEdge(event)) edges.set(delivery, { event, admittedAt });
  }
  return { edges, relations };
}

/** Divides the edges into those of users who have few in the batch, those of busy followers, and jobs for hot users. */
function divided(edges: readonly AdmittedEdge[]) {
  const calm: AdmittedEdge[] = [];
  const jobs: EdgeJob[] = [];
  for (const [user, own] of grouped(edges, ({ event }) => event.payload.following_id)) {
    if (own.length <= FEW_EDGES) calm.push(...own);
    else jobs.push(...chunked(own, MAX_JOB_EDGES).map((some) => jobOf(user, some)));
  }
  const byFollower = [...grouped(calm, ({ event }) => event.payload.follower_id).values()];
  const few = byFollower.filter(({ length }) => length <= FEW_EDGES).flat();
  const busy = byFollower.filter(({ length }) => length > FEW_EDGES).flat();
  return { few, busy, jobs };
}

function jobOf(following_id: string, edges: readonly AdmittedEdge[]): EdgeJob {
  return {
    following_id,
    admitted_at: edges.reduce((oldest, { admittedAt }) => Math.min(oldest, admittedAt), Number.POSITIVE_INFINITY),
    edges: edges.map(({ event: { name, payload } }) => {
      return { follower_id: payload.follower_id, version: payload.version, follows: name === "user_followed" };
    }),
  };
}

function edgesIn({ following_id, admitted_at: admittedAt, edges }: EdgeJob): AdmittedEdge[] {
  return edges.map(({ follower_id, version, follows }) => {
    const name = follows ? "user_followed" : "user_unfollowed";
    return { event: { name, payload: { follower_id, following_id, version } }, admittedAt };
  });
}
