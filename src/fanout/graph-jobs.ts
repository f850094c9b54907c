import {
  type ErasureEvent,
  isEdge,
  isErasure,
  isRelation,
  isStanding,
  parseStored,
  type StandingEvent,
} from "../contracts/events.js";
import { type EdgeJob, MAX_JOB_EDGES, parseEdgeJob } from "../contracts/fanout.js";
import type { Delivery, Handlers } from "../delivery/handler.js";
import { allOf, chunked, grouped } from "../kernel/concurrency.js";
import { SECOND } from "../kernel/time.js";
import { usersOfEdge, usersOfRelation, withoutErased } from "../state/index.js";
import type { FanoutDeps } from "./deps.js";
import { type AdmittedEdge, createApplyEdges } from "./graph.js";
import { isRedriven } from "./plan.js";
import { type AdmittedRelation, createApplyRelations } from "./relations.js";
import { applyStandingEvents, createApplyStandings } from "./standings.js";

/** Maximum number of edges in a batch of a followed user who is not hot, and of a follower who is not busy. */
const FEW_EDGES = 100;
/** Time to wait for the drops of all authors of a batch. */
const TIMEOUT_MS = SECOND / 2;

type GraphDeps = FanoutDeps & {
  /** Resolves when a batch of jobs may begin. */
  readonly throttle: () => Promise<void>;
};

/**
 * Handles `graph.*` and `fanout.edges.*`. A batch in which one user gets very many followers shows that edges wait:
 * those of this user become jobs, so that the edges of others do not wait for them. Those of a follower of very many
 * users are applied at the same time as the others, and the next batch waits for the others only.
 */
export function createGraphHandlers(deps: GraphDeps): Readonly<Record<"graph" | "hotGraph", Handlers>> {
  const { queueEdges } = deps;
  const applyEdges = createApplyEdges(deps);
  const applyRelations = createApplyRelations(deps);
  const applyStandings = createApplyStandings(deps);
  /** Records the erasures of the batch before its other events are filtered. */
  const changesOf = async (deliveries: readonly Delivery[]) => {
    const { changes, erasures, standings } = parsed(deliveries);
    await Promise.all(erasures.map(({ event, admittedAt }) => recordErasure(deps, event, admittedAt)));
    return { ...(await changesWithoutErased(deps, changes)), standings };
  };
  return {
    graph: {
      single: async (delivery) => {
        const { edges, relations, standings } = await changesOf([delivery]);
        await applyStandingEvents(deps, applyStandings, [...standings.values()]);
        await applyRelations(relations);
        await applyEdges([...edges.values()]);
      },
      // Relations come first: no page may show drops that they hide, and they need no upstream. Standings are recorded:
      // veiling needs an upstream, so that each user is handled alone.
      batch: async (deliveries, { beginNext }) => {
        const { edges, relations, standings } = await changesOf(deliveries);
        await applyRelations(relations);
        const { few, busy, jobs } = divided([...edges.values()]);
        // If jobs are refused while edges are still written, those writes must not end after the writes of the next
        // attempt.
        const late = await allOf([
          applyEdges(few, TIMEOUT_MS).finally(beginNext),
          applyEdges(busy, TIMEOUT_MS),
          queueEdges(jobs),
          applyStandingEvents(deps, deps.standings.record, [...standings.values()]),
        ]);
        const postponed = new Set([...late[0], ...late[1]]);
        return deliveries.filter(
          (delivery) =>
            postponed.has(edges.get(delivery) as AdmittedEdge) ||
            standings.get(delivery)?.payload.user_id !== undefined,
        );
      },
    },
    hotGraph: createHotGraph(deps),
  };
}

/** Records the erasure. After that no event restores the user, and the user is not pulled. */
export async function recordErasure(
  { erased, authorStates }: Pick<FanoutDeps, "erased" | "authorStates">,
  { payload }: ErasureEvent,
  admittedAt: number,
): Promise<void> {
  if (await erased.record(payload.user_id, payload.version, admittedAt)) await authorStates.forget(payload.user_id);
}

function createHotGraph(deps: GraphDeps): Handlers {
  const { throttle, untilCovered } = deps;
  const keptEdges = (edges: readonly AdmittedEdge[]) =>
    withoutErased(deps.erased, edges, ({ event }) => usersOfEdge(event));
  const applyYielding = createApplyEdges({ ...deps, yields: true });
  return {
    single: async (delivery, { stopping }) => {
      const job = parseEdgeJob(delivery.body);
      // A redriven job waits, as in jobs.ts.
      if (isRedriven(delivery)) await untilCovered?.(job.admitted_at, stopping);
      await applyYielding(await keptEdges(edgesIn(job)));
    },
    batch: async (deliveries) => {
      await throttle();
      const jobs = deliveries.map((delivery) => (isRedriven(delivery) ? [] : edgesIn(parseEdgeJob(delivery.body))));
      const postponed = new Set(await applyYielding(await keptEdges(jobs.flat()), TIMEOUT_MS));
      return deliveries.filter(
        (delivery, index) => isRedriven(delivery) || jobs[index]?.some((edge) => postponed.has(edge)),
      );
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
  const standings = new Map<Delivery, StandingEvent>();
  for (const delivery of deliveries) {
    const { subject, body, time: admittedAt } = delivery;
    const event = parseStored(subject, body, admittedAt);
    if (isRelation(event)) relations.push({ event, admittedAt });
    else if (isEdge(event)) edges.set(delivery, { event, admittedAt });
    else if (isErasure(event)) erasures.push({ event, admittedAt });
    else if (isStanding(event)) standings.set(delivery, event);
  }
  return { changes: { edges, relations }, erasures, standings };
}

/** Drops changes that name an erased user, with one question for all. */
async function changesWithoutErased({ erased }: GraphDeps, { edges, relations }: Changes): Promise<Changes> {
  const usersOf = ({ event }: AdmittedEdge | AdmittedRelation): readonly string[] =>
    isRelation(event) ? usersOfRelation(event) : usersOfEdge(event);
  const all = [...edges.values(), ...relations];
  const kept = await withoutErased(erased, all, usersOf);
  if (kept.length === all.length) return { edges, relations };
  const keptSet = new Set(kept);
  return {
    edges: new Map([...edges].filter(([, edge]) => keptSet.has(edge))),
    relations: relations.filter((relation) => keptSet.has(relation)),
  };
}

/** Divides the edges into those of users with few in the batch, those of busy followers, and jobs for hot users. */
function divided(edges: readonly AdmittedEdge[]) {
  const calm: AdmittedEdge[] = [];
  const jobs: EdgeJob[] = [];
  for (const [user, edgesOfUser] of grouped(edges, ({ event }) => event.payload.following_id)) {
    if (edgesOfUser.length <= FEW_EDGES) calm.push(...edgesOfUser);
    else jobs.push(...chunked(edgesOfUser, MAX_JOB_EDGES).map((chunk) => jobOf(user, chunk)));
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
