import type { EdgeEvent } from "../contracts/events.js";
import { compareVersions } from "../contracts/versions.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { currentOf, isMerged, type PullRegistry } from "../state/big-authors/pulled.js";
import type { HomeBounds } from "../state/entries/writer.redis.js";
import type { EdgeChange, EdgeState, Fences } from "../state/fences/types.js";
import type { FanoutDeps } from "./deps.js";
import { changedHome, DropWrites, dropReads, MAX_DROP_PAGES, readsWithTimeout, usualPages } from "./graph-drops.js";
import { AUTHORS_AT_ONCE } from "./sources.grpc.js";

export interface AdmittedEdge {
  readonly event: EdgeEvent;
  readonly admittedAt: number;
}

/** Returns the edges that are left out, in the same order. */
export type ApplyEdges = (batch: readonly AdmittedEdge[], timeoutMs?: number) => Promise<readonly AdmittedEdge[]>;

/** The changes of one edge in a batch, and the state in force. */
interface Edge extends EdgeState {
  readonly follower: string;
  readonly following: string;
  readonly changes: readonly EdgeChange[];
}

const MAX_ROUNDS = 10;

/**
 * Makes the function that applies a batch of changed edges: it adds authors' drops to their followers' home timelines,
 * or removes them. The newest version of an edge wins in any order of events: after each round the edges are read
 * again, and the round is repeated for those that have changed.
 *
 * Of a pulled author the followers' sets change too. Homes get the drops all the same: among them are direct ones, which
 * the author's timeline lacks. An author whose state has changed meanwhile is another reason to repeat the round.
 *
 * A round ends by removing the authors' deleted drops from the homes, those it has just added among them: a deletion that
 * read the followers while an edge was changing may have missed them (see `apply.ts`).
 *
 * With `timeoutMs`, the edges of authors whose drops cannot be read are returned, as are those that are missing once no
 * author's have come for so long, and those of authors who take more pages than most: they hold up no other. Without it,
 * homes that would need more than `MAX_DROP_PAGES` are left to be rebuilt by their next read.
 */
export function createApplyEdges(deps: FanoutDeps): ApplyEdges {
  return async (batch, timeoutMs) => {
    const late = new Set<string>();
    const isLate = ({ event }: AdmittedEdge): boolean => late.has(event.payload.following_id);
    // A user's own drops are in their home anyway.
    const admitted = batch.filter(({ event: { payload } }) => payload.follower_id !== payload.following_id);
    let edges = await inForce(deps.fences.changeEdges, admitted.map(changeOf));
    for (let round = 0; round < MAX_ROUNDS && edges.length > 0; round++) {
      const registry = await currentOf(deps.authorStates);
      for (const author of await applyRound(deps, { edges, registry }, timeoutMs)) late.add(author);
      const before = edges.filter(({ following }) => !late.has(following));
      const now = await inForce(
        deps.fences.newestEdges,
        before.flatMap(({ changes }) => changes),
      );
      const registryNow = await currentOf(deps.authorStates);
      edges = now.filter(
        ({ version, follows, following }, at) =>
          version !== before[at]?.version ||
          follows !== before[at].follows ||
          registry.get(following)?.state !== registryNow.get(following)?.state,
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

/** The edges are in the order of their first change. */
async function inForce(statesOf: Fences["changeEdges"], changes: readonly EdgeChange[]): Promise<Edge[]> {
  const edges = new Map<string, Edge>();
  const states = await statesOf(changes);
  for (const [at, change] of changes.entries()) {
    const { follower, following } = change;
    const name = JSON.stringify([follower, following]);
    const known = edges.get(name);
    const newest = newer(known, states[at] as EdgeState);
    edges.set(name, { follower, following, ...newest, changes: [...(known?.changes ?? []), change] });
  }
  return [...edges.values()];
}

/** The unfollow is in force if two changes name one version. */
function newer(known: EdgeState | undefined, { version, follows }: EdgeState): EdgeState {
  if (known === undefined || compareVersions(version, known.version) > 0) return { version, follows };
  const both = version === known.version && known.follows && follows;
  return { version: known.version, follows: version === known.version ? both : known.follows };
}

/** Returns the authors whose edges are left out. An author's drops are read after all edges of the round are recorded. */
async function applyRound(
  deps: FanoutDeps,
  { edges, registry }: { readonly edges: readonly Edge[]; readonly registry: PullRegistry },
  timeoutMs: number | undefined,
): Promise<ReadonlySet<string>> {
  const { fences, writer, maxEntries, yields } = deps;
  const { addToPulls, removeFromPulls } = deps.authors;
  const authors = grouped(edges, ({ following }) => following);
  const followers = [...new Set(edges.map(({ follower }) => follower))];
  await fences.renewGenerations([...authors.keys()]);
  // Authors who are pushed are removed too: the walk that ended their pull found in no list who had unfollowed by then.
  await removeFromPulls(followersOf(edges.filter(({ follows }) => !follows)));
  await addToPulls(followersOf(edges.filter((edge) => edge.follows && isMerged(registry.get(edge.following)))));
  const held = await writer.interruptRebuilds(followers);
  const bounds = new Map(followers.map((follower, at) => [follower, held[at] as HomeBounds]));
  const reads = timeoutMs === undefined ? undefined : readsWithTimeout(deps, timeoutMs);
  const maxPages = timeoutMs === undefined ? MAX_DROP_PAGES : usualPages(maxEntries);
  const writes = new DropWrites(writer, maxEntries, yields);
  const late = new Set<string>();
  const applyAuthor = async (author: string, own: readonly Edge[]): Promise<void> => {
    // Followers of one author share its pages, which then have the direct drops to all of them.
    const alone = own.length === 1 ? own[0]?.follower : undefined;
    const of = { author, user: alone ?? author, reader: alone };
    const { first: readFirst, next } = reads?.open(of) ?? dropReads(deps, of);
    const first = await readFirst();
    if (!first) return void late.add(author);
    const homes = own.flatMap((edge) => changedHome(edge, bounds.get(edge.follower) as HomeBounds));
    const open = await writes.apply(homes, { first, next, maxPages });
    if (open.length === 0) return;
    if (timeoutMs === undefined) await writes.leaveToRebuild(open);
    else late.add(author);
  };
  let failure: { readonly error: unknown } | undefined;
  await mapLimited([...authors], AUTHORS_AT_ONCE, async ([author, own]) => {
    if (failure) return;
    await applyAuthor(author, own).catch((error: unknown) => {
      failure ??= { error };
    });
  }).finally(() => reads?.end());
  // The error waits for all writes of this round, which otherwise could follow those of the next attempt.
  if (failure) throw failure.error;
  await writes.flush();
  await fences.removeDeleted(followersOf(edges));
  return late;
}

/** The result is keyed by the followed author. */
const followersOf = (edges: readonly Edge[]): ReadonlyMap<string, readonly string[]> => {
  const authors = grouped(edges, ({ following }) => following);
  return new Map([...authors].map(([author, own]) => [author, own.map(({ follower }) => follower)]));
};
