import type { EdgeEvent, EventName } from "../contracts/events.js";
import type { EdgeChange, EdgeState, Fences } from "../contracts/fences.js";
import { belongsHome, type TimelineEntry } from "../contracts/timelines.js";
import { isTooFarAhead } from "../contracts/times.js";
import type { Drop } from "../gen/avion/posts.js";
import { chunked, mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import type { ReadAuthorDrops } from "./sources.grpc.js";
import { audienceOf, type HomeBounds, type TimelineWriter } from "./store.redis.js";

/** `admittedAt` in ms since the epoch. */
export type EdgeApplied = (event: EventName, admittedAt: number) => void;

export interface AdmittedEdge {
  readonly event: EdgeEvent;
  readonly admittedAt: number;
}

interface GraphDeps {
  readonly fences: Fences;
  readonly writer: TimelineWriter;
  readonly readAuthorDrops: ReadAuthorDrops;
  readonly maxEntries: number;
  readonly applied: EdgeApplied;
}

/** The changes of one edge in a batch, and the state in force. */
interface Edge extends EdgeState {
  readonly follower: string;
  readonly following: string;
  readonly changes: readonly EdgeChange[];
}

const DROPS_A_CALL = 200;
const FOLLOWERS_AT_ONCE = 64;
const MAX_ROUNDS = 10;

/**
 * Makes the function that applies a batch of changed edges: it adds authors' drops to their followers' home timelines,
 * or removes them. The newest version of an edge wins in any order of events: after each round the edges are read
 * again, and the round is repeated for those that have changed.
 *
 * A round ends by removing tombstoned drops from the homes, those it has just added among them: a deletion that read
 * the followers while an edge was changing may have missed them (see `apply.ts`).
 */
export function createApplyEdges(deps: GraphDeps): (batch: readonly AdmittedEdge[]) => Promise<void> {
  return async (batch) => {
    // A user's own drops are in their home anyway.
    const admitted = batch.filter(({ event: { payload } }) => payload.follower_id !== payload.following_id);
    let edges = await inForce(deps.fences, admitted.map(changeOf));
    for (let round = 0; round < MAX_ROUNDS && edges.length > 0; round++) {
      await applyRound(deps, edges);
      const now = await inForce(
        deps.fences,
        edges.flatMap(({ changes }) => changes),
      );
      const before = edges;
      edges = now.filter(
        ({ version, follows }, at) => version !== before[at]?.version || follows !== before[at].follows,
      );
    }
    if (edges.length > 0) throw new AppError("failed", "the edge changes faster than it can be applied");
    for (const { event, admittedAt } of admitted) deps.applied(event.name, admittedAt);
  };
}

const changeOf = ({ event: { name, payload } }: AdmittedEdge): EdgeChange => {
  const { follower_id: follower, following_id: following, version } = payload;
  return { follower, following, version, follows: name === "user_followed" };
};

/** Records the changes; the edges are in the order of their first change. */
async function inForce(fences: Fences, changes: readonly EdgeChange[]): Promise<Edge[]> {
  const edges = new Map<string, Edge>();
  const states = await fences.changeEdges(changes);
  for (const [at, change] of changes.entries()) {
    const { follower, following } = change;
    const name = JSON.stringify([follower, following]);
    const known = edges.get(name);
    const newest = newer(known, states[at] as EdgeState);
    edges.set(name, { follower, following, ...newest, changes: [...(known?.changes ?? []), change] });
  }
  return [...edges.values()];
}

/** Of two changes that name one version, the unfollow is in force. */
function newer(known: EdgeState | undefined, { version, follows }: EdgeState): EdgeState {
  if (known === undefined || version > known.version) return { version, follows };
  const both = version === known.version && known.follows && follows;
  return { version: known.version, follows: version === known.version ? both : known.follows };
}

async function applyRound(deps: GraphDeps, edges: readonly Edge[]): Promise<void> {
  const { fences, writer } = deps;
  const homes = new Map<string, Edge[]>();
  for (const edge of edges) homes.set(edge.follower, [...(homes.get(edge.follower) ?? []), edge]);
  const followers = [...homes.keys()];
  await fences.renewGenerations([...new Set(edges.map(({ following }) => following))]);
  const bounds = await writer.interruptRebuilds(followers);
  const sharing = { ...deps, readAuthorDrops: shared(deps.readAuthorDrops) };
  await mapLimited([...homes], FOLLOWERS_AT_ONCE, ([follower, own], at) =>
    applyToHome(sharing, { follower, bounds: bounds[at] as HomeBounds, edges: own }),
  );
  await fences.removeTombstoned(followers);
}

/** Within a round nothing is read twice: all edges of the round were recorded before it. */
function shared(read: ReadAuthorDrops): ReadAuthorDrops {
  const pages = new Map<string, ReturnType<ReadAuthorDrops>>();
  return (author, below) => {
    const name = JSON.stringify([author, below]);
    const page = pages.get(name) ?? read(author, below);
    pages.set(name, page);
    return page;
  };
}

interface Home {
  readonly follower: string;
  readonly bounds: HomeBounds;
  readonly edges: readonly Edge[];
}

async function applyToHome(deps: GraphDeps, { follower, bounds, edges }: Home): Promise<void> {
  const { writer, readAuthorDrops } = deps;
  const audience = audienceOf([follower]);
  const adding = new Parts<TimelineEntry>((entries) => writer.addHome(audience, entries));
  const removing = new Parts<string>((drops) => writer.removeHome(audience, drops));
  for (const { following, follows } of edges) {
    if (follows) await backfill(deps, { follower, following, floor: bounds.floor ?? 0 }, adding);
    else if (bounds.oldest !== undefined)
      for await (const page of dropsDownTo(readAuthorDrops, following, bounds.oldest - 1))
        await removing.push(page.map(({ drop_id }) => drop_id));
  }
  await adding.flush();
  await removing.flush();
}

/** Adds one drop more than a timeline holds, so that trimming raises the floor where the list is cut off. */
async function backfill(
  { readAuthorDrops, maxEntries }: GraphDeps,
  to: { readonly follower: string; readonly following: string; readonly floor: number },
  adding: Parts<TimelineEntry>,
): Promise<void> {
  let count = 0;
  for await (const page of dropsDownTo(readAuthorDrops, to.following, to.floor)) {
    const now = Date.now();
    const entries = page
      .filter((drop) => belongsHome(drop, to.follower) && !isTooFarAhead(drop.created_at, now))
      .map((drop) => ({ drop: drop.drop_id, score: drop.created_at }));
    await adding.push(entries.slice(0, maxEntries + 1 - count));
    count += entries.length;
    if (count > maxEntries) return;
  }
}

/** Gathers items of several authors, and writes them as soon as they fill a call. */
class Parts<T> {
  #items: T[] = [];

  constructor(private readonly write: (items: readonly T[]) => Promise<void>) {}

  async push(items: readonly T[]): Promise<void> {
    this.#items.push(...items);
    if (this.#items.length >= DROPS_A_CALL) await this.flush();
  }

  async flush(): Promise<void> {
    for (const part of chunked(this.#items.splice(0), DROPS_A_CALL)) await this.write(part);
  }
}

async function* dropsDownTo(read: ReadAuthorDrops, author: string, floor: number): AsyncGenerator<readonly Drop[]> {
  let below: { before: number; drop: string } | undefined;
  for (;;) {
    const page = await read(author, below);
    const above = page.filter((drop) => drop.created_at > floor || floor <= 0);
    if (above.length > 0) yield above;
    const last = page.at(-1);
    if (last === undefined || above.length < page.length) return;
    below = { before: last.created_at, drop: last.drop_id };
  }
}
