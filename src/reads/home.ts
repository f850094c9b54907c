import { type Byline, entryOfDrop } from "../contracts/timelines.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { Follows, type HiddenStore, type HiddenUsers, homeOf, type Pulls } from "../state/index.js";
import { annotate } from "../telemetry/spans.js";
import { type CollectRequest, collect, collectUpward } from "./collect.js";
import { type BelowFloor, startOf } from "./pages.js";
import { snapshotOf, type TakeSnapshot } from "./rebuild.js";
import type { OpenSources, Sources } from "./sources.grpc.js";

export interface HomeDeps {
  readonly openSources: OpenSources;
  readonly pulls: Pulls;
  readonly hidden: HiddenStore;
  readonly rebuildQueue: BoundedQueue;
  readonly maxEntries: number;
  /** True: homes leave out replies to those whom their users do not follow. */
  readonly judgesReplies: boolean;
}

/** No user has this id. */
const NO_READER = "";

/** A home has its owner's drops, too. Hidden authors are not read. */
async function authorsOf(reader: string, following: readonly string[], hidden: HiddenUsers): Promise<string[]> {
  const authors = [...new Set([reader, ...following])];
  const asked = await hidden.among(authors.map((author) => ({ author })));
  return authors.filter((author) => !asked.hides({ author }));
}

/** Leaves out of each page the drops that the reader does not see. */
const sourcesWithoutHidden = (sources: Sources, hidden: HiddenUsers): Sources =>
  hidden.size === 0
    ? sources
    : {
        ...sources,
        drops: (authors, limits, answered) =>
          sources.drops(authors, limits, async (asked, { drops, next }) => {
            const bylines = drops.map((drop) => entryOfDrop(drop).by);
            const hiders = await hidden.among(bylines);
            const shown = drops.filter((_, index) => !hiders.hides(bylines[index] as Byline));
            return answered(asked, { drops: shown, next });
          }),
      };

/** Leaves out of each page the replies that a home does not show. Without `follows` it shows all. */
const sourcesWithoutReplies = (sources: Sources, follows: Follows | undefined): Sources =>
  follows === undefined
    ? sources
    : {
        ...sources,
        drops: (authors, limits, answered) =>
          sources.drops(authors, limits, (asked, { drops, next }) =>
            answered(asked, { drops: drops.filter((drop) => follows.shows(entryOfDrop(drop).by)), next }),
          ),
      };

/**
 * Takes a snapshot of a home, and notes which of its authors are pulled. `afresh`: does not use the stored followings.
 */
export function homeSnapshot(
  { openSources, pulls, hidden: store, maxEntries, judgesReplies }: HomeDeps,
  reader: string,
  { afresh = false } = {},
): TakeSnapshot {
  return async (deadline) => {
    const sources = openSources(reader);
    const hidden = await store.known(reader, deadline);
    const following = await pulls.following(reader, () => sources.following(reader, deadline), afresh);
    const authors = await authorsOf(reader, following, hidden);
    const wanted = { reader, authors, deadline, count: maxEntries + 1 };
    const follows = judgesReplies ? new Follows(reader, following) : undefined;
    const shown = sourcesWithoutReplies(sourcesWithoutHidden(sources, hidden), follows);
    const { entries, reached, reads } = await collect(shown, wanted);
    annotate({ "timeline.authors": authors.length, "timeline.author_reads": reads });
    return { ...snapshotOf(entries, maxEntries, reached?.score ?? 0), follows };
  };
}

/**
 * Reads the drops of a pulled author that every follower may see. Direct drops are in the homes of their recipients.
 */
export function authorSnapshot({ openSources, maxEntries }: HomeDeps, author: string): TakeSnapshot {
  return async (deadline) => {
    const wanted = { reader: NO_READER, authors: [author], deadline, count: maxEntries + 1 };
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

type HomeRead = Pick<CollectRequest, "reader" | "authors" | "deadline" | "tolerant">;

export function homeBelowFloor(
  { openSources, hidden: store, rebuildQueue, judgesReplies }: HomeDeps,
  reader: string,
  { deadline, tolerant = false }: { readonly deadline: number; readonly tolerant?: boolean },
): BelowFloor {
  const ask = <T>(work: (sources: Sources, home: HomeRead) => Promise<T>): Promise<T> =>
    rebuildQueue(async () => {
      const sources = openSources(reader, { tolerant });
      const hidden = await store.known(reader, deadline).catch((error: unknown) => {
        if (!tolerant) throw error;
        return store.lastKnown(reader);
      });
      const following = await sources.following(reader, deadline);
      const authors = await authorsOf(reader, following, hidden);
      const follows = judgesReplies ? new Follows(reader, following) : undefined;
      const shown = sourcesWithoutReplies(sourcesWithoutHidden(sources, hidden), follows);
      return work(shown, { reader, authors, deadline, tolerant });
    }, homeOf(reader));
  return {
    older: (below, { above, count }) => ask((sources, home) => collect(sources, { ...home, below, above, count })),
    newer: ({ above, count, span }, top) =>
      ask((sources, home) => collectUpward(sources, { ...home, above, top, count, span })),
  };
}
