import type { ReadHistory } from "../../src/consistency/fences/fences.js";
import type { TimelineEvent } from "../../src/contracts/events.js";
import type { Sources as FanoutSources } from "../../src/fanout/sources.grpc.js";
import type { Drop, GetDropsByUserIDRequest } from "../../src/gen/avion/posts.js";
import { createBoundedQueue } from "../../src/kernel/concurrency.js";
import { createOldestFirst } from "../../src/kernel/oldest-first.js";
import type { ReadDropsByUser } from "../../src/platform/grpc/upstreams.js";
import { createSources, type Sources } from "../../src/timeline/sources.grpc.js";
import { newestFirst, pageAfter, type World } from "./world.js";

/** An author's drops older than a position, as PostService hands them out. */
function dropsBelow(
  world: World,
  author: string,
  below: { created_at: number; drop_id: string } | undefined,
  count: number,
): Drop[] {
  const drops = world.dropsOf(author);
  let [from, to] = [0, below === undefined ? 0 : drops.length];
  while (below !== undefined && from < to) {
    const middle = (from + to) >> 1;
    if (newestFirst(below, drops[middle] as Drop) < 0) to = middle;
    else from = middle + 1;
  }
  return drops.slice(from, from + count);
}

type ReadDrops = (request: GetDropsByUserIDRequest) => Promise<readonly Drop[]>;

export const readDropsOf =
  (world: World): ReadDrops =>
  async ({ user_id, before, max_id, limit }) =>
    dropsBelow(world, user_id, before > 0 ? { created_at: before, drop_id: max_id } : undefined, limit);

/** The upstreams as reads see them, out of a world in memory. */
export function sourcesOf(world: World, read = readDropsOf(world)): Sources {
  const upstreams = {
    following: async ({ user }: { readonly user: string }) => ({
      ids: world.followingOf(user),
      next: "",
      total: undefined,
    }),
    openDropsByUser: (): ReadDropsByUser => (request, _, answered) => {
      void read(request).then((drops) => answered(undefined, drops), answered);
    },
  };
  return createSources(upstreams, createOldestFirst(128))();
}

/** Bounds that nothing reaches. */
export const rebuildQueue = createBoundedQueue({ atOnce: 64, waiting: 1_000 });

/** The upstreams as fan-out sees them; small pages, so that lists have several. Who unfollows between two pages makes nobody skip one. */
export function fanoutSourcesOf(world: World, pageSize: number): FanoutSources {
  const pageOf = (all: readonly string[], token: string) => {
    const { page, last } = pageAfter(all, token, pageSize);
    return { ids: page, next: last, total: all.length };
  };
  return {
    readFollowers: async (author, token) => pageOf(world.followersOf(author), token),
    readFollowing: async (user, token) => pageOf(world.followingOf(user), token),
    readAuthorDrops: async (author, below) =>
      dropsBelow(world, author, below && { created_at: below.before, drop_id: below.drop }, pageSize),
  };
}

/** A log in memory: what the fences are refilled from. */
export function historyOf(log: readonly { readonly event: TimelineEvent; readonly time: number }[]): ReadHistory {
  return async function* () {
    for (const { event, time } of [...log]) {
      if (event.name === "drop_deleted" || event.name === "user_followed" || event.name === "user_unfollowed")
        yield { event, time };
    }
  };
}
