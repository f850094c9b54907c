import { homeKey } from "../contracts/keys.js";
import { annotate } from "../delivery/telemetry.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { collect, collectUpward } from "./collect.js";
import { type BelowFloor, startOf } from "./pages.js";
import type { Pulls } from "./pulls.redis.js";
import { snapshotOf, type TakeSnapshot } from "./rebuild.js";
import type { OpenSources, Sources } from "./sources.grpc.js";

export interface HomeDeps {
  readonly openSources: OpenSources;
  readonly pulls: Pulls;
  readonly rebuildQueue: BoundedQueue;
  readonly maxEntries: number;
}

/** No user has this id. */
const NOBODY = "";

async function authorsFor(sources: Sources, user: string, deadline: number): Promise<string[]> {
  return [...new Set([user, ...(await sources.following(user, deadline))])];
}

/** Reads also which of the authors are pulled; with `afresh` it does so whatever is kept of it. */
export function homeSnapshot(
  { openSources, pulls, maxEntries }: HomeDeps,
  reader: string,
  { afresh = false } = {},
): TakeSnapshot {
  return async (deadline) => {
    const opened = openSources(reader);
    let reads = 0;
    const drops: Sources["drops"] = (authors, limits, answered) =>
      opened.drops(authors, limits, (...answer) => {
        reads++;
        answered(...answer);
      });
    const sources = { ...opened, drops };
    const following = await pulls.following(reader, () => sources.following(reader, deadline), afresh);
    const authors = [...new Set([reader, ...following])];
    const { entries, reached } = await collect(sources, { reader, authors, deadline, count: maxEntries + 1 });
    annotate({ "timeline.authors": authors.length, "timeline.author_reads": reads });
    return snapshotOf(entries, maxEntries, reached?.score ?? 0);
  };
}

/** The drops of a pulled author that any follower may see; direct ones are in the homes of their recipients. */
export function authorSnapshot({ openSources, maxEntries }: HomeDeps, author: string): TakeSnapshot {
  return async (deadline) => {
    const wanted = { reader: NOBODY, authors: [author], deadline, count: maxEntries + 1 };
    const { entries, reached } = await collect(openSources(author), wanted);
    return snapshotOf(entries, maxEntries, reached?.score ?? 0);
  };
}

export function fillPulls({ openSources, pulls }: HomeDeps, user: string, deadline: number): Promise<void> {
  return pulls.fill(user, () => openSources(user).following(user, deadline));
}

export interface Expected {
  readonly floor: number;
  readonly count: number;
  readonly deadline: number;
}

export async function readExpectedHome(deps: HomeDeps, reader: string, { floor, count, deadline }: Expected) {
  const above = floor > 0 ? startOf(floor + 1) : undefined;
  const { entries, reached } = await homeBelowFloor(deps, reader, { deadline }).older(undefined, { above, count });
  return { entries, floor: reached?.score ?? 0 };
}

export function homeBelowFloor(
  { openSources, rebuildQueue }: HomeDeps,
  reader: string,
  { deadline, tolerant = false }: { readonly deadline: number; readonly tolerant?: boolean },
): BelowFloor {
  const ask = <T>(work: (sources: Sources, authors: readonly string[]) => Promise<T>): Promise<T> =>
    rebuildQueue(async () => {
      const opened = openSources(reader);
      const drops: Sources["drops"] = (authors, limits, answered) =>
        opened.drops(authors, { ...limits, tolerant }, answered);
      const sources = { ...opened, drops };
      return work(sources, await authorsFor(sources, reader, deadline));
    }, homeKey(reader));
  return {
    older: (below, { above, count }) =>
      ask((sources, authors) => collect(sources, { reader, authors, below, above, count, deadline })),
    newer: ({ above, count }, top) =>
      ask((sources, authors) => collectUpward(sources, { reader, authors, above, top, count, deadline })),
  };
}
