import { type PageRequest, parsePageRequest, parseUser } from "../contracts/page-request.js";
import { type Affected, compareEntries } from "../contracts/timelines.js";
import type { GetTimelineRequest } from "../gen/avion/timeline.js";
import { type ReadDeadlines, readDeadlines, withDeadline } from "../kernel/deadlines.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { SingleFlight } from "../kernel/sharing.js";
import { SECOND } from "../kernel/time.js";
import {
  authorOf,
  GLOBAL,
  Hidden,
  type HiddenUsers,
  homeOf,
  type Incomplete,
  isIncomplete,
  LOCAL,
  NOBODY,
  NOTHING_HIDDEN,
  present,
  type Snapshot,
  type TimelineStore,
  withoutHidden,
} from "../state/index.js";
import { authorSnapshot, fillPulls, type HomeDeps, homeBelowFloor, homeSnapshot } from "./home.js";
import {
  type BelowFloor,
  type Entries,
  type Page,
  type PageFences,
  type Query,
  queryOf,
  retainedOf,
  visible,
} from "./pages.js";
import type { Rebuild, TakeSnapshot } from "./rebuild.js";
import { readPageOnce } from "./reposts.js";
import type { SharedName } from "./shared-log.nats.js";

export interface ReadDeps extends HomeDeps {
  readonly store: TimelineStore;
  readonly fences: PageFences;
  readonly readShared: (name: SharedName) => Promise<Snapshot>;
  readonly rebuild: Rebuild;
  readonly deadlineMaxMs: number;
  readonly maybeLost: () => boolean;
  /** Homes may lack drops of these authors, or all drops if the home is of one of these readers. */
  readonly affected: () => readonly Affected[];
  readonly isAffected: (user: string, deadline: number) => Promise<boolean>;
  readonly log: Logger;
  readonly observe: (timeline: string, outcome: ReadOutcome) => void;
}

/**
 * Outcome of a read. `hit`: read from the stored timeline, at least in part; `beyond`: wholly from the upstreams, below
 * the floor.
 */
type ReadOutcome = "hit" | "beyond" | "rebuilt" | "degraded";

export interface ReadContext {
  readonly deadline: number;
  /** Runs `work` with the span of the call active. */
  traced<T>(work: () => Promise<T>): Promise<T>;
}

/** Returns an encoded GetTimelineResponse. */
export type GetTimeline<Request = GetTimelineRequest> = (request: Request, context: ReadContext) => Promise<Buffer>;

interface Viewer {
  readonly user: string;
  /** Reads the bylines of all entries of the timeline. */
  readonly readBylines: () => Promise<Entries>;
}

export interface Timeline {
  readonly name: "home" | "local" | "global" | "list";
  readonly key: string;
  /** The home of the user of whose lists this is one: a user's home and lists share what one timeline may take. */
  readonly owner?: string;
  /** Local and global pages leave out drops that this user does not see. A home is written without them. */
  readonly viewer?: Viewer | undefined;
  readonly snapshot: TakeSnapshot;
  readonly isAffected?: (deadline: number) => Promise<boolean>;
  readonly fillPulls?: (deadline: number) => Promise<void>;
  readonly belowFloor?: (options: { readonly deadline: number; readonly tolerant?: boolean }) => BelowFloor;
}

export function getHomeTimeline(deps: ReadDeps): GetTimeline {
  return (request, context) => {
    const user = parseUser(request.user_id);
    const page = parsePageRequest(request);
    return getPage(deps, context, page, {
      name: "home",
      key: homeOf(user),
      snapshot: (deadline) => homeSnapshot(deps, user)(deadline),
      isAffected: (deadline) => deps.isAffected(user, deadline),
      fillPulls: (deadline) => fillPulls(deps, user, deadline),
      belowFloor: (options) => homeBelowFloor({ ...deps, hidden: withoutSuspended(deps) }, user, options),
    });
  };
}

/** Stored homes have the drops of the suspended, which are left out of pages. */
const withoutSuspended = ({ hidden, store }: ReadDeps): ReadDeps["hidden"] => ({
  ...hidden,
  known: async (user, deadline) => store.withSuspended(await hidden.known(user, deadline)),
  lastKnown: (user) => store.withSuspended(hidden.lastKnown(user)),
});

export function getSharedTimeline(deps: ReadDeps, name: SharedName): GetTimeline {
  const key = name === "local" ? LOCAL : GLOBAL;
  const timeline: Timeline = { name, key, snapshot: () => deps.readShared(name) };
  const flight = new SingleFlight<Snapshot>();
  const readBylines = async () => (await flight.run(name, () => deps.readShared(name))).entries;
  return (request, context) => {
    const page = parsePageRequest(request);
    const user = request.user_id === "" ? NOBODY : parseUser(request.user_id);
    const viewer = user === NOBODY && !deps.store.hasUnlisted() ? undefined : { user, readBylines };
    return getPage(deps, context, page, { ...timeline, viewer });
  };
}

/** Rejects if the users service refuses the viewer's id. An erased viewer hides nobody. */
function unlessInvalid(user: string, error: unknown): HiddenUsers | undefined {
  if (codeOf(error) === "invalid") throw error;
  return codeOf(error) === "notfound" ? new Hidden(user, new Map()) : undefined;
}

/** Reads a page. A first page that is stored whole is read outside the trace of its call: see decision 17. */
async function getPage(deps: ReadDeps, context: ReadContext, page: PageRequest, timeline: Timeline): Promise<Buffer> {
  const { name, key, viewer } = timeline;
  const until = readDeadlines(context.deadline, deps.deadlineMaxMs);
  const mayLack = (): boolean =>
    deps.maybeLost() || (name === "home" && (deps.affected().length > 0 || deps.store.mayShowSuspended()));
  const isFirst = page.cursor === undefined && !mayLack();
  const read = () =>
    deps.store.readFirstPage(key, { drops: page.limit, since: deps.fences.retentionStart() }, viewer?.user);
  const first = isFirst ? await withDeadline(read(), until.deadline).catch(() => undefined) : undefined;
  if (Buffer.isBuffer(first) && !mayLack()) {
    deps.observe(name, "hit");
    return first;
  }
  const incomplete = Buffer.isBuffer(first) ? undefined : first;
  return context.traced(async () => {
    const call = { ...until, page, incomplete };
    return viewer === undefined ? getAnyPage(deps, call, timeline) : getShownPage(deps, { ...call, viewer }, timeline);
  });
}

/** Resolves to undefined if the hidden users of a viewer cannot be read. */
export async function hiddenFrom(deps: ReadDeps, user: string, deadline: number): Promise<HiddenUsers | undefined> {
  if (user === NOBODY) return NOTHING_HIDDEN;
  const cached = await withDeadline(deps.store.readHidden(user), deadline).catch(() => undefined);
  if (cached) return cached;
  const filled = withDeadline(deps.hidden.known(user, deadline), deadline);
  return filled.catch((error: unknown) => unlessInvalid(user, error));
}

/** Leaves out of local or global the drops that the viewer does not see. */
async function getShownPage(
  deps: ReadDeps,
  { viewer: { user, readBylines }, ...call }: PageCall & { readonly viewer: Viewer },
  timeline: Timeline,
): Promise<Buffer> {
  const asked = await hiddenFrom(deps, user, call.deadline);
  const hidden = deps.store.withUnlisted(asked ?? deps.hidden.lastKnown(user), user);
  const store = { ...deps.store, read: withoutHidden(deps.store, hidden, readBylines) };
  return getAnyPage({ ...deps, store }, { ...call, isUnjudged: asked === undefined }, timeline);
}

interface PageCall extends ReadDeadlines {
  readonly page: PageRequest;
  /** True if the current hidden users of the viewer could not be read. */
  readonly isUnjudged?: boolean;
  /** Reason why the stored first page could not be used; undefined: none was read. */
  readonly incomplete: Incomplete | undefined;
}

export async function getAnyPage(deps: ReadDeps, call: PageCall, timeline: Timeline): Promise<Buffer> {
  const { page, deadline } = call;
  const mayLack = async (): Promise<boolean> => {
    if (deps.maybeLost() || (timeline.name === "home" && deps.store.mayShowSuspended())) return true;
    return timeline.isAffected ? withDeadline(timeline.isAffected(deadline), deadline).catch(() => true) : false;
  };
  const before = mayLack();
  const read = await readComplete(deps, timeline, call);
  const outcome = call.isUnjudged || (await before) || (await mayLack()) ? "degraded" : read.outcome;
  deps.observe(timeline.name, outcome);
  return present(read.entries, {
    page,
    reached: read.reached,
    newestFirst: page.cursor?.kind !== "min_id",
    degraded: outcome === "degraded",
  });
}

const repostWindowOf = ({ store }: ReadDeps, { name }: Timeline): number =>
  name === "home" || name === "list" ? store.repostWindow : 0;

type Read = Pick<Page, "entries" | "reached"> & { readonly outcome: ReadOutcome };

const DEGRADED_WAIT_MS = SECOND;

/**
 * Maximum number of rebuilds for one page: the home, its owner's pulled authors if they changed meanwhile, their
 * timelines, and one more.
 */
const MAX_REBUILDS = 4;

async function readComplete(deps: ReadDeps, timeline: Timeline, call: PageCall): Promise<Read> {
  const { page: request, deadline, incomplete } = call;
  const { key } = timeline;
  const belowFloor = timeline.belowFloor?.({ deadline });
  const repostWindow = repostWindowOf(deps, timeline);
  let query: Query | undefined;
  try {
    for (let rebuilds = 0; rebuilds <= MAX_REBUILDS; rebuilds++) {
      const wanted = await withDeadline(queryOf(deps, key, request), deadline);
      if (!isIncomplete(wanted)) query = wanted;
      const known = isIncomplete(wanted) ? wanted : rebuilds === 0 ? incomplete : undefined;
      const page = () => readPageOnce({ ...deps, belowFloor, repostWindow }, key, wanted as Query);
      const read = known ?? (await withDeadline(page(), deadline));
      if (!isIncomplete(read)) {
        const { entries, reached, beyond, isUncovered } = read;
        if (reached || isUncovered) return { entries, outcome: "degraded", reached };
        if (rebuilds > 0) return { entries, outcome: "rebuilt" };
        const isBeyond = beyond && entries.slice(0, request.limit).every((entry) => beyond.has(entry));
        return { entries, outcome: isBeyond ? "beyond" : "hit" };
      }
      await withDeadline(complete(deps, timeline, { ...read, deadline }), deadline);
    }
    throw new AppError("unavailable", "the timeline must be rebuilt again and again");
  } catch (error) {
    return degrade(deps, timeline, { ...call, query, error });
  }
}

/** Rebuilds the timeline, and those that are merged into it and known. */
async function complete(
  deps: ReadDeps,
  { key, owner, snapshot, fillPulls }: Timeline,
  { keys, arePullsKnown, deadline }: Incomplete & { readonly deadline: number },
): Promise<void> {
  const rebuild = (incomplete: string): Promise<void> => {
    const author = authorOf(incomplete);
    return author === undefined
      ? deps.rebuild(incomplete, snapshot, { owner })
      : deps.rebuild(incomplete, authorSnapshot(deps, author));
  };
  // The rebuild of a home also reads its owner's pulled authors.
  const fills = !arePullsKnown && !keys.includes(key);
  await Promise.all([...keys.map(rebuild), fills && fillPulls?.(deadline)]);
}

interface Degraded extends ReadDeadlines {
  /** Undefined while the position of the cursor is not known. */
  readonly query: Query | undefined;
  readonly error: unknown;
}

async function degrade(
  deps: ReadDeps,
  timeline: Timeline,
  { query, deadline, latest, error }: Degraded,
): Promise<Read> {
  // A reader whom the users service refuses, or who is erased, gets no page.
  if (["invalid", "notfound"].includes(codeOf(error))) throw error;
  deps.log.warn({ timeline: timeline.name, error: oneLine(error) }, "a page is degraded");
  if (!query) return { entries: [], outcome: "degraded" };
  const stored = await withDeadline(readStored(deps, timeline, query), latest).catch(() => []);
  const { belowFloor } = timeline;
  const degradedDeadline = Math.min(deadline, Date.now() + DEGRADED_WAIT_MS);
  const isFull = stored.length >= query.count;
  if (!belowFloor || query.direction === "newer" || isFull || degradedDeadline <= Date.now())
    return { entries: stored, outcome: "degraded" };
  const upstream = belowFloor({ deadline: degradedDeadline, tolerant: true }).older(query.below, query);
  // At their deadline the upstreams return the drops that they have read.
  const degradedLatest = degradedDeadline + latest - deadline;
  const none: Page = { entries: [] };
  const { entries: read, reached } = await withDeadline(upstream, degradedLatest).catch(() => none);
  // If the tombstones cannot be read in time, only the upstreams tell which drops are deleted.
  const shown = await withDeadline(visible(deps.fences, read), degradedLatest).catch(() =>
    retainedOf(deps.fences, read),
  );
  const merged = new Map([...stored, ...shown].map((entry) => [entry.drop, entry]));
  const entries = [...merged.values()].sort((a, b) => compareEntries(b, a)).slice(0, query.count);
  const oldest = entries.at(-1);
  // A page with stored drops from below `reached` continues after its last drop.
  const isCutShort = reached && entries.length < query.count && (!oldest || compareEntries(oldest, reached) >= 0);
  return { entries, outcome: "degraded", ...(isCutShort && { reached }) };
}

async function readStored(deps: ReadDeps, timeline: Timeline, query: Query): Promise<Entries> {
  const { store, fences } = deps;
  const read: TimelineStore["read"] = async (range) => ({ ...(await store.read(range)), floor: 0 });
  const repostWindow = repostWindowOf(deps, timeline);
  const page = await readPageOnce({ store: { ...store, read }, fences, repostWindow }, timeline.key, query);
  return isIncomplete(page) ? [] : page.entries;
}
