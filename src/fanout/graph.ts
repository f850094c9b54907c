import type { EdgeEvent } from "../contracts/events.js";
import { isListReader, listOfReader } from "../contracts/lists.js";
import { compareVersions } from "../contracts/versions.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import type { EdgeChange, EdgeState, Fences, HomeBounds } from "../state/index.js";
import { currentOf, isMerged, type PullRegistry } from "../state/index.js";
import type { FanoutDeps } from "./deps.js";
import { changedHome, DropWrites, dropReads, MAX_DROP_PAGES, readsWithTimeout, usualPages } from "./graph-drops.js";
import { AUTHORS_AT_ONCE } from "./sources.grpc.js";

export interface AdmittedEdge {
  readonly event: EdgeEvent;
  readonly admittedAt: number;
}

/** Applies edges. Returns those that were not applied, in the same order. */
export type ApplyEdges = (batch: readonly AdmittedEdge[], timeoutMs?: number) => Promise<readonly AdmittedEdge[]>;

/** Changes of one edge in a batch, and the state in force. */
interface Edge extends EdgeState {
  readonly follower: string;
  readonly following: string;
  readonly changes: readonly EdgeChange[];
}

const MAX_ROUNDS = 10;

/**
 * Returns a function that applies a batch of changed edges: it adds authors' drops to their followers' homes, or
 * removes them. The newest version of an edge wins in any order of events: after each round the edges are read again,
 * and the round is repeated for those that have changed.
 *
 * The edges of a pulled author also change the followers' sets of pulled authors. Homes get the drops as well, as among
 * them are direct ones, which the author's timeline lacks. If the author's state has changed meanwhile, the round is
 * repeated, too.
 *
 * A round ends by removing the authors' deleted drops from the homes, those just added included: a deletion that read
 * the followers while an edge was changing may have missed them (see `apply.ts`).
 *
 * With `timeoutMs`, these edges are returned, so that they do not delay others: edges of authors whose drops cannot be
 * read, that are missing after no page has arrived for `timeoutMs`, or that take more pages than most. Without it,
 * homes that would need more than `MAX_DROP_PAGES` are left to be rebuilt by their next read.
 */
export function createApplyEdges(deps: FanoutDeps): ApplyEdges {
  return async (batch, timeoutMs) => {
    const late = new Set<string>();
    const isLate = ({ event }: AdmittedEdge): boolean => late.has(event.payload.following_id);
    // Homes have their user's own drops anyway.
    const others = batch.filter(({ event: { payload } }) => payload.follower_id !== payload.following_id);
    const ofLists = others.filter(isOfList);
    const admitted = ofLists.length === 0 ? others : others.filter((edge) => !isOfList(edge));
    await applyMembers(deps, ofLists);
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
        ({ version, follows, following }, index) =>
          version !== before[index]?.version ||
          follows !== before[index].follows ||
          registry.get(following)?.state !== registryNow.get(following)?.state,
      );
    }
    if (edges.length > 0) throw new AppError("failed", "the edge changes faster than it can be applied");
    for (const edge of admitted) if (!isLate(edge)) deps.applied(edge.event.name, edge.admittedAt);
    return admitted.filter(isLate);
  };
}

const isOfList = ({ event: { payload } }: AdmittedEdge): boolean => isListReader(payload.follower_id);

/**
 * Applies changes of the members of lists. Once a member's generation is new, fan-out reads anew in which lists the
 * member is; the next read of the list rebuilds it from its members of then. So versions do not matter here.
 */
async function applyMembers({ fences, renewList }: FanoutDeps, edges: readonly AdmittedEdge[]): Promise<void> {
  if (edges.length === 0) return;
  await fences.renewGenerations([...new Set(edges.map(({ event }) => event.payload.following_id))]);
  const lists = new Set(edges.flatMap(({ event }) => listOfReader(event.payload.follower_id) ?? []));
  await mapLimited([...lists], AUTHORS_AT_ONCE, renewList);
}

const changeOf = ({ event: { name, payload } }: AdmittedEdge): EdgeChange => {
  const { follower_id: follower, following_id: following, version } = payload;
  return { follower, following, version, follows: name === "user_followed" };
};

/** Returns the state in force of each edge, in the order of their first changes. */
async function inForce(statesOf: Fences["changeEdges"], changes: readonly EdgeChange[]): Promise<Edge[]> {
  const edges = new Map<string, Edge>();
  const states = await statesOf(changes);
  for (const [index, change] of changes.entries()) {
    const { follower, following } = change;
    const name = JSON.stringify([follower, following]);
    const known = edges.get(name);
    const newest = newer(known, states[index] as EdgeState);
    edges.set(name, { follower, following, ...newest, changes: [...(known?.changes ?? []), change] });
  }
  return [...edges.values()];
}

/** Returns the newer state. If two changes name one version, the unfollow is in force. */
function newer(known: EdgeState | undefined, { version, follows }: EdgeState): EdgeState {
  if (known === undefined || compareVersions(version, known.version) > 0) return { version, follows };
  const both = version === known.version && known.follows && follows;
  return { version: known.version, follows: version === known.version ? both : known.follows };
}

/**
 * Applies one round. Returns the authors whose edges were not applied. An author's drops are read after all edges of
 * the round are recorded.
 */
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
  // The sets of unfollowers of pushed authors are changed, too: the scan that ended the pull did not reach users who
  // had unfollowed by then.
  await removeFromPulls(followersOf(edges.filter(({ follows }) => !follows)));
  await addToPulls(followersOf(edges.filter((edge) => edge.follows && isMerged(registry.get(edge.following)))));
  const byFollower = grouped(edges, ({ follower }) => follower);
  const readBounds = await writer.interruptRebuilds(followers, (follower) => byFollower.get(follower) ?? []);
  const bounds = new Map(followers.map((follower, index) => [follower, readBounds[index] as HomeBounds]));
  const reads = timeoutMs === undefined ? undefined : readsWithTimeout(deps, timeoutMs);
  const maxPages = timeoutMs === undefined ? MAX_DROP_PAGES : usualPages(maxEntries);
  const writes = new DropWrites(writer, maxEntries, yields);
  const late = new Set<string>();
  const applyAuthor = async (author: string, edgesOfAuthor: readonly Edge[]): Promise<void> => {
    // Followers of one author share its pages, which then have the direct drops to all of them.
    const alone = edgesOfAuthor.length === 1 ? edgesOfAuthor[0]?.follower : undefined;
    const request = { author, user: alone ?? author, reader: alone };
    const { first: readFirst, next } = reads?.open(request) ?? dropReads(deps, request);
    const first = await readFirst();
    if (!first) return void late.add(author);
    const homes = edgesOfAuthor.flatMap((edge) => changedHome(edge, bounds.get(edge.follower) as HomeBounds));
    const open = await writes.apply(homes, { first, next, maxPages });
    if (open.length === 0) return;
    if (timeoutMs === undefined) await writes.leaveToRebuild(open);
    else late.add(author);
  };
  let failure: { readonly error: unknown } | undefined;
  await mapLimited([...authors], AUTHORS_AT_ONCE, async ([author, edgesOfAuthor]) => {
    if (failure) return;
    await applyAuthor(author, edgesOfAuthor).catch((error: unknown) => {
      failure ??= { error };
    });
  }).finally(() => reads?.end());
  // The error is thrown after all writes of this round, which otherwise could end after those of the next attempt.
  if (failure) throw failure.error;
  await writes.flush();
  await fences.removeDeleted(followersOf(edges));
  return late;
}

/** Groups the followers of edges by the followed author. */
const followersOf = (edges: readonly Edge[]): ReadonlyMap<string, readonly string[]> => {
  const authors = grouped(edges, ({ following }) => following);
  return new Map([...authors].map(([author, group]) => [author, group.map(({ follower }) => follower)]));
};
