import { parsePageRequest, parseUser } from "../contracts/page-request.js";
import { entryOfDrop } from "../contracts/timelines.js";
import type { GetListTimelineRequest } from "../gen/avion/timeline.js";
import { readDeadlines } from "../kernel/deadlines.js";
import { codeOf } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import {
  authorTimelineOf,
  createJudge,
  currentOf,
  homeOf,
  type ListReader,
  type ListReaders,
  listTimelineOf,
  type OwnedList,
  type PulledAuthors,
  type Stored,
  type TimelineStore,
} from "../state/index.js";
import { annotate } from "../telemetry/spans.js";
import { collect, collectUpward } from "./collect.js";
import { type GetTimeline, getAnyPage, hiddenFrom, type ReadDeps, type Timeline } from "./get-timeline.js";
import type { Expected } from "./home.js";
import { createOpenAmong, type Signed } from "./open-drops.js";
import { type BelowFloor, startOf } from "./pages.js";
import { snapshotOf, type TakeSnapshot } from "./rebuild.js";
import type { Sources } from "./sources.grpc.js";

interface ListDeps extends ReadDeps {
  readonly authorStates: PulledAuthors;
  readonly readers: ListReaders;
}

type JudgeAll = ReturnType<typeof createJudge>;

/**
 * A list is a home whose followings are its members. It is stored with all their drops that the owner may ever see, and
 * with their bylines: what the owner hides, whom the owner follows and who is a member decides when a page is read, so
 * that no change of these changes the stored list, and no late write shows what it must not show.
 */
export function getListTimeline(deps: ListDeps): GetTimeline<GetListTimelineRequest> {
  const { readers } = deps;
  const openAmong = createOpenAmong(deps.openSources);
  return (request, context) => {
    const owned = { owner: parseUser(request.user_id), list: readId("list_id", request.list_id) };
    const page = parsePageRequest(request);
    return context.traced(async () => {
      const until = readDeadlines(context.deadline, deps.deadlineMaxMs);
      const { isOld, ...reader } = await readers.readOrLast(owned, until.deadline);
      const asked = await hiddenFrom(deps, owned.owner, until.deadline);
      const hidden = deps.store.withSuspended(asked ?? deps.hidden.lastKnown(owned.owner));
      const judgeAll = createJudge(reader, hidden, deps.judgesReplies);
      let isUnjudged = isOld || asked === undefined;
      const isOpenAmong = (entries: readonly Signed[]) =>
        openAmong(owned.owner, entries, until.deadline).catch(() => {
          isUnjudged = true;
          return NO_DROPS;
        });
      const store = { ...deps.store, ...readsOf(deps, reader, { judgeAll, isOpenAmong }) };
      const call = {
        ...until,
        page,
        incomplete: undefined,
        get isUnjudged() {
          return isUnjudged;
        },
      };
      return getAnyPage({ ...deps, store }, call, timelineOf(deps, { owned, reader, judgeAll }));
    });
  };
}

const NO_DROPS: ReadonlySet<string> = new Set();

interface Reading {
  readonly owned: OwnedList;
  readonly reader: ListReader;
  readonly judgeAll: JudgeAll;
}

function timelineOf(deps: ListDeps, { owned, reader, judgeAll }: Reading): Timeline {
  const [key, owner] = [listTimelineOf(owned.list), homeOf(owned.owner)];
  return {
    name: "list",
    key,
    owner,
    snapshot: listSnapshot(deps, owned),
    isAffected: async () => deps.affected().some(({ user }) => reader.members.has(user)),
    belowFloor: ({ deadline, tolerant = false }) => {
      const ask = <T>(work: (sources: Sources, wanted: ReturnType<typeof wantedOf>) => Promise<T>): Promise<T> =>
        deps.rebuildQueue(() => {
          const sources = deps.openSources(owned.owner, { tolerant });
          return work(sourcesFor(sources, judgeAll), { ...wantedOf(reader, deadline), tolerant });
        }, owner);
      return belowFloorBy(ask);
    },
  };
}

const wantedOf = ({ owner, members }: ListReader, deadline: number) => {
  return { reader: owner, authors: [...members], deadline, tolerant: false };
};

const belowFloorBy = (
  ask: <T>(work: (sources: Sources, wanted: ReturnType<typeof wantedOf>) => Promise<T>) => Promise<T>,
): BelowFloor => ({
  older: (below, { above, count }) => ask((sources, wanted) => collect(sources, { ...wanted, below, above, count })),
  newer: ({ above, count, span }, top) =>
    ask((sources, wanted) => collectUpward(sources, { ...wanted, above, top, count, span })),
});

/** Leaves out of each page the drops that the owner does not see. */
const sourcesFor = (sources: Sources, judgeAll: JudgeAll): Sources => ({
  ...sources,
  drops: (authors, limits, answered) =>
    sources.drops(authors, limits, async (asked, { drops, next }) => {
      const bylines = drops.map((drop) => entryOfDrop(drop).by);
      const judge = await judgeAll(bylines);
      return answered(asked, {
        drops: drops.filter((_, index) => judge(bylines[index] as Signed["by"]) === true),
        next,
      });
    }),
});

type ListSnapshotDeps = Pick<ListDeps, "openSources" | "maxEntries" | "readers"> & {
  readonly store: Pick<TimelineStore, "forget">;
};

/** Reads the newest `count` drops of the members of a list created after `floor`, whether the owner sees them or not. */
export async function readExpectedList(
  { openSources, rebuildQueue, readers }: Pick<ListDeps, "openSources" | "rebuildQueue" | "readers">,
  list: string,
  { floor, count, deadline }: Expected,
) {
  const reader = await readers.read({ owner: "", list }, deadline);
  const above = floor > 0 ? startOf(floor + 1) : undefined;
  const wanted = { ...wantedOf(reader, deadline), above, count };
  const { entries, reached } = await rebuildQueue(
    () => collect(openSources(reader.owner), wanted),
    homeOf(reader.owner),
  );
  return { entries, floor: reached?.score ?? 0 };
}

/** Reads the drops of the members of now. The timeline of a list that is deleted meanwhile is removed. */
export function listSnapshot(
  { openSources, maxEntries, store, readers }: ListSnapshotDeps,
  { owner, list }: OwnedList,
): TakeSnapshot {
  return async (deadline) => {
    const reader = await readers.read({ owner, list }, deadline).catch(async (error: unknown) => {
      if (codeOf(error) === "notfound") await store.forget(listTimelineOf(list));
      throw error;
    });
    const wanted = { ...wantedOf(reader, deadline), count: maxEntries + 1 };
    const { entries, reached, reads } = await collect(openSources(reader.owner), wanted);
    annotate({ "timeline.authors": wanted.authors.length, "timeline.author_reads": reads });
    return snapshotOf(entries, maxEntries, reached?.score ?? 0);
  };
}

interface Judging {
  readonly judgeAll: JudgeAll;
  /** Resolves to those of the drops that are for more than followers. */
  readonly isOpenAmong: (entries: readonly Signed[]) => Promise<ReadonlySet<string>>;
}

/** Returns the reads of the stored list, and of the timelines of its pulled members. */
function readsOf(
  { store, authorStates }: ListDeps,
  { members }: ListReader,
  { judgeAll, isOpenAmong }: Judging,
): Pick<TimelineStore, "read" | "createdAt"> {
  return {
    async read(range): Promise<Stored> {
      const stored = await store.readList(range, members);
      const signed = stored.entries.filter((entry): entry is Signed => entry.by !== undefined);
      const judge = await judgeAll(signed.map(({ by }) => by));
      const unknown = signed.filter(({ by }) => judge(by) === "unknown");
      const open = unknown.length === 0 ? NO_DROPS : await isOpenAmong(unknown);
      const shown = new Set(signed.flatMap(({ drop, by }) => (judge(by) === true || open.has(drop) ? drop : [])));
      const hidden = new Set(stored.entries.flatMap(({ drop }) => (shown.has(drop) ? [] : drop)));
      const judged = hidden.size === 0 ? stored : { ...stored, hidden };
      if (signed.length === stored.entries.length) return judged;
      // The bylines are lost: they are a key of their own.
      await store.forget(range.key);
      return { ...judged, floor: undefined, incomplete: undefined };
    },
    async createdAt(key, drop) {
      const listed = await store.createdAt(key, drop);
      if (listed !== undefined) return listed;
      const registry = await currentOf(authorStates);
      const pulled = [...members].filter((member) => registry.has(member));
      const times = await Promise.all(pulled.map((author) => store.createdAt(authorTimelineOf(author), drop)));
      return times.find((time) => time !== undefined);
    },
  };
}
