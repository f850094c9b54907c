import { annotate } from "../delivery/telemetry.js";
import type { InTurn } from "../kernel/concurrency.js";
import { collect, collectUpward } from "./collect.js";
import { type BelowFloor, startOf } from "./pages.js";
import { snapshotOf, type TakeSnapshot } from "./rebuild.js";
import type { OpenSources, Sources } from "./sources.grpc.js";

export interface HomeDeps {
  readonly openSources: OpenSources;
  readonly inTurn: InTurn;
  readonly maxEntries: number;
}

async function authorsFor(sources: Sources, user: string, deadline: number): Promise<string[]> {
  return [...new Set([user, ...(await sources.following(user, deadline))])];
}

export function homeSnapshot({ openSources, maxEntries }: HomeDeps, reader: string): TakeSnapshot {
  return async (deadline) => {
    const opened = openSources();
    let reads = 0;
    const drops: Sources["drops"] = (...args) => {
      reads++;
      return opened.drops(...args);
    };
    const sources = { ...opened, drops };
    const authors = await authorsFor(sources, reader, deadline);
    const { entries } = await collect(sources, { reader, authors, deadline, count: maxEntries + 1 });
    annotate({ "timeline.authors": authors.length, "timeline.author_reads": reads });
    return snapshotOf(entries, maxEntries, 0);
  };
}

export interface Expected {
  readonly floor: number;
  readonly count: number;
  readonly deadline: number;
}

export function readExpectedHome(deps: HomeDeps, reader: string, { floor, count, deadline }: Expected) {
  const above = floor > 0 ? startOf(floor + 1) : undefined;
  return homeBelowFloor(deps, reader, { deadline }).older(undefined, { above, count });
}

export function homeBelowFloor(
  { openSources, inTurn }: HomeDeps,
  reader: string,
  { deadline, tolerant = false }: { readonly deadline: number; readonly tolerant?: boolean },
): BelowFloor {
  const ask = <T>(work: (sources: Sources, authors: readonly string[]) => Promise<T>): Promise<T> =>
    inTurn(async () => {
      const opened = openSources();
      const drops: Sources["drops"] = (...args) => opened.drops(...args).catch(() => []);
      const sources = tolerant ? { ...opened, drops } : opened;
      return work(sources, await authorsFor(sources, reader, deadline));
    });
  return {
    older: (below, { above, count }) =>
      ask(
        async (sources, authors) =>
          (await collect(sources, { reader, authors, below, above, count, deadline })).entries,
      ),
    newer: ({ above, count }, top) =>
      ask((sources, authors) => collectUpward(sources, { reader, authors, above, top, count, deadline })),
  };
}
