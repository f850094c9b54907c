import type { EdgeEvent, EventName } from "../contracts/events.js";
import type { EdgeChange, EdgeState, Fences } from "../contracts/fences.js";
import { belongsHome, type TimelineEntry } from "../contracts/timelines.js";
import { isTooFarAhead } from "../contracts/times.js";
import type { Drop } from "../gen/avion/posts.js";
import { mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { pause } from "../kernel/time.js";
import type { ReadAuthorDrops } from "./sources.grpc.js";
import { audienceOf, type HomeBounds, type HomeDrops, type HomeEntries, type TimelineWriter } from "./store.redis.js";

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

/** Gathered before they are written: this bounds the memory of a batch. */
const ENTRIES_A_WRITE = 20_000;
const FOLLOWERS_AT_ONCE = 64;
const MAX_ROUNDS = 10;

/**
 * Makes the function that applies a batch of changed edges: it adds authors' drops to their followers' home timelines,
 * or removes them. The newest version of an edge wins in any order of events: after each round the edges are read
 * again, and the round is repeated for those that have changed.
 *
 * A round ends by removing tombstoned drops from the homes, those it has just added among them: a deletion that read
 * the followers while an edge was changing may have missed them (see `apply.ts`).
 *
 * The edges of authors whose drops cannot be read are returned, as are those that are missing once no author's have come
 * for `patienceMs`: they hold up no other.
 */
export function createApplyEdges(
  deps: GraphDeps,
): (batch: readonly AdmittedEdge[], patienceMs?: number) => Promise<readonly AdmittedEdge[]> {
  return async (batch, patienceMs) => {
    const late = new Set<string>();
    const isLate = ({ event }: AdmittedEdge): boolean => late.has(event.payload.following_id);
    // A user's own drops are in their home anyway.
    const admitted = batch.filter(({ event: { payload } }) => payload.follower_id !== payload.following_id);
    let edges = await inForce(deps.fences, admitted.map(changeOf));
    for (let round = 0; round < MAX_ROUNDS && edges.length > 0; round++) {
      for (const author of await applyRound(deps, edges, patienceMs)) late.add(author);
      const before = edges.filter(({ following }) => !late.has(following));
      const now = await inForce(
        deps.fences,
        before.flatMap(({ changes }) => changes),
      );
      edges = now.filter(
        ({ version, follows }, at) => version !== before[at]?.version || follows !== before[at].follows,
      );
    }
    if (edges.length > 0) throw new AppError("failed", "the edge changes faster than it can be applied");
    for (const one of admitted) if (!isLate(one)) deps.applied(one.event.name, one.admittedAt);
    return admitted.filter(isLate);
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

/** Returns the authors whose edges are left out. */
async function applyRound(
  deps: GraphDeps,
  edges: readonly Edge[],
  patienceMs: number | undefined,
): Promise<ReadonlySet<string>> {
  const { fences, writer } = deps;
  const authors = [...new Set(edges.map(({ following }) => following))];
  const followers = [...new Set(edges.map(({ follower }) => follower))];
  await fences.renewGenerations(authors);
  const bounds = await writer.interruptRebuilds(followers);
  const readAuthorDrops = shared(deps.readAuthorDrops);
  const late = patienceMs === undefined ? new Set<string>() : await lateAmong(authors, readAuthorDrops, patienceMs);
  const homes = new Map(
    followers.map((follower, at) => [follower, { bounds: bounds[at] as HomeBounds, edges: [] as Edge[] }]),
  );
  for (const edge of edges) if (!late.has(edge.following)) homes.get(edge.follower)?.edges.push(edge);
  const adding = new Parts<HomeEntries>(({ entries }) => entries.length, writer.addHome);
  const removing = new Parts<HomeDrops>(({ drops }) => drops.length, writer.removeHome);
  await mapLimited([...homes], FOLLOWERS_AT_ONCE, ([follower, home]) =>
    applyToHome({ ...deps, readAuthorDrops }, { follower, ...home }, { adding, removing }),
  );
  await adding.flush();
  await removing.flush();
  await fences.removeTombstoned(followers);
  return late;
}

/** While some answer, the others are waited for: all may be slow. */
async function lateAmong(authors: readonly string[], read: ReadAuthorDrops, patienceMs: number): Promise<Set<string>> {
  const late = new Set(authors);
  const answered = authors.map((author) =>
    read(author, undefined).then(
      () => late.delete(author),
      () => undefined,
    ),
  );
  const all = Promise.all(answered).then(() => true);
  for (let before = Number.POSITIVE_INFINITY; late.size < before; ) {
    before = late.size;
    const ended = new AbortController();
    const isEnd = await Promise.race([all, pause(patienceMs, ended.signal).then(() => false)]);
    ended.abort();
    if (isEnd) break;
  }
  return new Set(late);
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

interface Changes {
  readonly adding: Parts<HomeEntries>;
  readonly removing: Parts<HomeDrops>;
}

async function applyToHome(
  deps: GraphDeps,
  { follower, bounds, edges }: Home,
  { adding, removing }: Changes,
): Promise<void> {
  const audience = audienceOf([follower]);
  const add = (entries: readonly TimelineEntry[]): Promise<void> => adding.push({ audience, entries });
  for (const { following, follows } of edges) {
    if (follows) await backfill(deps, { follower, following, floor: bounds.floor ?? 0 }, add);
    else if (bounds.oldest !== undefined)
      for await (const page of dropsDownTo(deps.readAuthorDrops, following, bounds.oldest - 1))
        await removing.push({ audience, drops: page.map(({ drop_id }) => drop_id) });
  }
}

/** Adds one drop more than a timeline holds, so that trimming raises the floor where the list is cut off. */
async function backfill(
  { readAuthorDrops, maxEntries }: GraphDeps,
  to: { readonly follower: string; readonly following: string; readonly floor: number },
  add: (entries: readonly TimelineEntry[]) => Promise<void>,
): Promise<void> {
  let count = 0;
  for await (const page of dropsDownTo(readAuthorDrops, to.following, to.floor)) {
    const now = Date.now();
    const entries = page
      .filter((drop) => belongsHome(drop, to.follower) && !isTooFarAhead(drop.created_at, now))
      .map((drop) => ({ drop: drop.drop_id, score: drop.created_at }));
    await add(entries.slice(0, maxEntries + 1 - count));
    count += entries.length;
    if (count > maxEntries) return;
  }
}

/** Gathers what many homes get, and writes it together. */
class Parts<T> {
  #parts: T[] = [];
  #entries = 0;

  constructor(
    private readonly entriesOf: (part: T) => number,
    private readonly write: (parts: readonly T[]) => Promise<void>,
  ) {}

  async push(part: T): Promise<void> {
    this.#parts.push(part);
    this.#entries += this.entriesOf(part);
    if (this.#entries >= ENTRIES_A_WRITE) await this.flush();
  }

  async flush(): Promise<void> {
    const parts = this.#parts;
    this.#parts = [];
    this.#entries = 0;
    if (parts.length > 0) await this.write(parts);
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
