import { type ErasureEvent, isEdge, isErasure, isRelation, parseStored } from "../contracts/events.js";
import { type EdgeJob, MAX_JOB_EDGES, parseEdgeJob } from "../contracts/fanout.js";
import type { Delivery, Handlers } from "../delivery/handler.js";
import { allOf, chunked, grouped } from "../kernel/concurrency.js";
import { SECOND } from "../kernel/time.js";
import { standing, usersOfEdge, usersOfRelation } from "../state/erased/standing.js";
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
  /** The erasures of the batch count for its other events. */
  const changesOf = async (deliveries: readonly Delivery[]): Promise<Changes> => {
    const { changes, erasures } = parsed(deliveries);
    await Promise.all(erasures.map(({ event, admittedAt }) => recordErasure(deps, event, admittedAt)));
    return standingChanges(deps, changes);
  };
  return {
    graph: {
      single: async (delivery) => {
        const { edges, relations } = await changesOf([delivery]);
        await applyRelations(relations);
        await applyEdges([...edges.values()]);
      },
      // Relations come first: no page may show what they hide, and they wait for no upstream.
      batch: async (deliveries, { beginNext }) => {
        const { edges, relations } = await changesOf(deliveries);
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

/** Once this resolves no event brings the user back, nor are they pulled. */
export async function recordErasure(
  { erased, authorStates }: Pick<FanoutDeps, "erased" | "authorStates">,
  { payload }: ErasureEvent,
  admittedAt: number,
): Promise<void> {
  if (await erased.record(payload.user_id, payload.version, admittedAt)) await authorStates.forget(payload.user_id);
}

function createHotGraph(deps: GraphDeps): Handlers {
  const { throttle, untilCovered } = deps;
  const standingEdges = (edges: readonly AdmittedEdge[]) =>
    standing(deps.erased, edges, ({ event }) => usersOfEdge(event));
  const applyYielding = createApplyEdges({ ...deps, yields: true });
  return {
    single: async (delivery, { stopping }) => {
      const job = parseEdgeJob(delivery.body);
      // A job that was redriven waits, as in jobs.ts.
      if (isRedriven(delivery)) await untilCovered?.(job.admitted_at, stopping);
      await applyYielding(await standingEdges(edgesIn(job)));
    },
    batch: async (deliveries) => {
      await throttle();
      const jobs = deliveries.map((delivery) => (isRedriven(delivery) ? [] : edgesIn(parseEdgeJob(delivery.body))));
      const left = new Set(await applyYielding(await standingEdges(jobs.flat()), TIMEOUT_MS));
      return deliveries.filter((delivery, at) => isRedriven(delivery) || jobs[at]?.some((edge) => left.has(edge)));
    },
  };
}

interface Changes {
  readonly edges: ReadonlyMap<Delivery, AdmittedEdge>;
  readonly relations: readonly AdmittedRelation[];
}

function parsed(deliveries: readonly Delivery[]) {
  const edges = new Map<Delivery, AdmittedEdge>();
  const relations: AdmittedRelation[] = [];
  const erasures: { readonly event: ErasureEvent; readonly admittedAt: number }[] = [];
  for (const delivery of deliveries) {
    const { subject, body, time: admittedAt } = delivery;
    const event = parseStored(subject, body, admittedAt);
    if (isRelation(event)) relations.push({ event, admittedAt });
    else if (isEdge(event)) edges.set(delivery, { event, admittedAt });
    else if (isErasure(event)) erasures.push({ event, admittedAt });
  }
  return { changes: { edges, relations }, erasures };
}

/** One question is asked for all. */
async function standingChanges({ erased }: GraphDeps, { edges, relations }: Changes): Promise<Changes> {
  const usersOf = ({ event }: AdmittedEdge | AdmittedRelation): readonly string[] =>
    isRelation(event) ? usersOfRelation(event) : usersOfEdge(event);
  const all = [...edges.values(), ...relations];
  const kept = await standing(erased, all, usersOf);
  if (kept.length === all.length) return { edges, relations };
  const some = new Set(kept);
  return {
    edges: new Map([...edges].filter(([, edge]) => some.has(edge))),
    relations: relations.filter((relation) => some.has(relation)),
  };
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
