import { expect } from "@jest/globals";
import type { GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { mapLimited } from "../../src/kernel/concurrency.js";
import type { BusyWorld } from "./busy-world.js";
import { becomes } from "./eventually.js";
import { downIds, pagesDown, type Query, type Reader } from "./reader.js";
import type { Listener } from "./rehearsal.js";

export const PAGE = 40;
/** Local and global show older drops, too, but never all. */
const SHARED = 400;
const AT_ONCE = 16;
export const PATIENCE_MS = 120_000;

/** A world, and each process that serves its pages. */
export interface Shown {
  readonly world: BusyWorld;
  readonly readers: readonly Reader[];
  /** Default: that of TIMELINE_HOME_REPOST_WINDOW. */
  readonly repostWindow?: number;
}

/** Waits until every process shows the homes of these users, local and global as the world says, whole and page by page. */
export async function expectPages({ world, readers, repostWindow }: Shown, users: readonly string[]): Promise<void> {
  const expectPage = (name: object, read: (query: Query) => Promise<GetTimelineResponse>, expected: () => string[]) =>
    becomes(async () => {
      const page = await read({ limit: PAGE });
      const wanted = expected();
      expect({ ...name, ids: page.drop_ids, degraded: page.degraded }).toEqual({
        ...name,
        ids: wanted.slice(0, PAGE),
        degraded: false,
      });
      const pages = await pagesDown((query = {}) => read(query), { limit: PAGE });
      expect({ ...name, ids: downIds(pages).slice(0, wanted.length) }).toEqual({ ...name, ids: wanted });
    }, PATIENCE_MS);
  for (const [api, reader] of readers.entries()) {
    await expectPage(
      { api, local: true },
      (query) => reader.local(query, 60_000),
      () => world.local(SHARED),
    );
    await expectPage(
      { api, global: true },
      (query) => reader.global(query, 60_000),
      () => world.local(SHARED),
    );
    await mapLimited(users, AT_ONCE, (user) =>
      expectPage(
        { api, user },
        (query) => reader.home(user, query, 60_000),
        () => world.page(user, SHARED, repostWindow),
      ),
    );
  }
}

/** After a `reset` the client reads its page: from then on the stream must be complete again. */
export function missedOn({ user, events }: Listener, world: BusyWorld, before: ReadonlySet<string>): string[] {
  const resets = events.filter(({ event }) => event === "reset");
  const since = resets.at(-1)?.atMs ?? 0;
  const sent = new Set(events.map(({ data }) => data["drop_id"]));
  const due = world.home(user, Number.POSITIVE_INFINITY).filter((drop) => !before.has(drop));
  const missed = due.filter((drop) => !sent.has(drop) && Number(world.drops.get(drop)?.created_at) > since);
  return missed.map((drop) => `${drop} for ${user}`);
}

/** What came twice between two resets. */
export function doubledOn({ user, events }: Listener): string[] {
  let sent = new Set<string>();
  return events.flatMap(({ event, data }) => {
    if (event === "reset") sent = new Set();
    if (event !== "new_drop") return [];
    const drop = String(data["drop_id"]);
    const isDoubled = sent.has(drop);
    sent.add(drop);
    return isDoubled ? [`${drop} for ${user}`] : [];
  });
}
