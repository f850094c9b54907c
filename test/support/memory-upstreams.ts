import type { TimelineEvent } from "../../src/contracts/events.js";
import type { DropPage, TimelineEntry } from "../../src/contracts/timelines.js";
import type { Sources as FanoutSources } from "../../src/fanout/sources.grpc.js";
import type { Drop } from "../../src/gen/avion/posts.js";
import { createBoundedQueue } from "../../src/kernel/concurrency.js";
import { createOldestFirst } from "../../src/kernel/oldest-first.js";
import { createSources, type Sources } from "../../src/reads/sources.grpc.js";
import type { ReadHistory } from "../../src/state/fences/fences.js";
import type { DropsRequest } from "../../src/upstreams/drop-pages.js";
import type { ReadDrops as ReadPages } from "../../src/upstreams/drop-reads.js";
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

type ReadDrops = (request: DropsRequest) => Promise<readonly Drop[]>;

const positionOf = (below: TimelineEntry | undefined) => below && { created_at: below.score, drop_id: below.drop };

/** Only an empty page is the end. */
export function dropPageOf(drops: readonly Drop[]): DropPage {
  const last = drops.at(-1);
  return { drops, next: last && { score: last.created_at, drop: last.drop_id } };
}

export const readDropsOf =
  (world: World): ReadDrops =>
  async ({ author, below, limit }) =>
    dropsBelow(world, author, positionOf(below), limit);

/** The upstreams as reads see them, out of a world in memory. */
export function sourcesOf(world: World, read = readDropsOf(world)): Sources {
  const upstreams = {
    following: async ({ user }: { readonly user: string }) => ({
      ids: world.followingOf(user),
      next: "",
      total: undefined,
    }),
    openDropsByUser: (): ReadPages => async (request) => dropPageOf(await read(request)),
  };
  return createSources(upstreams, createOldestFirst(128))("reader");
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
    findLists: async () => [],
    isFollowing: async (user, author) => world.follows(user, author),
    readAuthorDrops: async (author, below) => dropPageOf(dropsBelow(world, author, positionOf(below), pageSize)),
    calls: createOldestFirst(128),
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
