import type { Fences } from "../contracts/fences.js";
import { GLOBAL_KEY, homeKey, LOCAL_KEY } from "../contracts/keys.js";
import { compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import type { GetTimelineRequest, GetTimelineResponse } from "../gen/avion/timeline.js";
import { AppError, codeOf, invalid, oneLine } from "../kernel/errors.js";
import { dateOfId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import { homeBeyond } from "./beyond.js";
import { type Beyond, Incomplete, type Query, type Run, readRun } from "./pages.js";
import type { ReadBounds, ReadSharedLog, Snapshot, TimelineStore } from "./ports.js";
import { fromToken, toToken } from "./position.js";
import type { Rebuild } from "./rebuild.js";
import { type Cursor, type PageRequest, parsePageRequest, parseUser } from "./request.js";
import { homeSnapshot } from "./snapshot.js";

/** Everything reads work with. */
export interface ReadDeps extends ReadBounds {
  readonly store: TimelineStore;
  readonly fences: Fences;
  readonly readSharedLog: ReadSharedLog;
  readonly rebuild: Rebuild;
  readonly maxEntries: number;
  /** The longest a caller is waited for, in ms. */
  readonly deadlineMaxMs: number;
  /** True while Redis may lack what it had confirmed. */
  readonly maybeLost: () => boolean;
  readonly log: Logger;
  readonly observe: (timeline: string, outcome: Outcome) => void;
}

/** How a page was had: `hit` from the stored timeline, `beyond` wholly from the upstreams, below the floor. */
type Outcome = "hit" | "beyond" | "rebuilt" | "degraded";

/** How a call is limited. */
export interface ReadContext {
  /** When the caller stops waiting, in ms since the epoch. */
  readonly deadline: number;
}

/** Reads one page of a timeline. */
export type GetTimeline = (request: GetTimelineRequest, context: ReadContext) => Promise<GetTimelineResponse>;

/** One timeline: where it is stored, and how it is known apart from that. */
interface Timeline {
  readonly name: "home" | "local" | "global";
  readonly key: string;
  readonly snapshot: (deadline: number) => Promise<Snapshot>;
  /** Home goes on past its cap. */
  readonly beyond?: (how: { readonly deadline: number; readonly tolerant?: boolean }) => Beyond;
}

/** The home timeline of the user in the request. */
export function getHomeTimeline(deps: ReadDeps): GetTimeline {
  return (request, context) => {
    const user = parseUser(request.user_id);
    return getPage(deps, context, parsePageRequest(request), {
      name: "home",
      key: homeKey(user),
      snapshot: homeSnapshot(deps, user),
      beyond: (how) => homeBeyond(deps, user, how),
    });
  };
}

/** The local or the global timeline. */
export function getSharedTimeline(deps: ReadDeps, name: "local" | "global"): GetTimeline {
  const key = name === "local" ? LOCAL_KEY : GLOBAL_KEY;
  return (request, context) =>
    getPage(deps, context, parsePageRequest(request), { name, key, snapshot: () => deps.readSharedLog(name) });
}

async function getPage(
  deps: ReadDeps,
  context: ReadContext,
  page: PageRequest,
  timeline: Timeline,
): Promise<GetTimelineResponse> {
  const { cursor } = page;
  const position = cursor && (await resolve(deps, timeline, cursor));
  const query: Query = {
    direction: cursor?.kind === "min_id" ? "newer" : "older",
    above: cursor?.kind === "max_id" ? undefined : position,
    below: cursor?.kind === "max_id" ? position : undefined,
    count: page.limit + 1,
  };
  const doubtful = deps.maybeLost();
  const { run, outcome: had } = await readComplete(deps, timeline, { query, deadline: context.deadline });
  const outcome = doubtful || deps.maybeLost() ? "degraded" : had;
  deps.observe(timeline.name, outcome);
  return present(run, { page, newestFirst: query.direction === "older", degraded: outcome === "degraded" });
}

/** The position a cursor stands for: a token says it, a drop we hold has it, and some ids carry a date. */
async function resolve(deps: ReadDeps, timeline: Timeline, cursor: Cursor): Promise<TimelineEntry> {
  const said = fromToken(cursor.text);
  if (said) return said;
  const dated = dateOfId(cursor.text);
  try {
    const held = await deps.store.createdAt(timeline.key, cursor.text);
    if (held !== undefined) return { score: held, drop: cursor.text };
  } catch (error) {
    if (dated === undefined) throw error;
  }
  if (dated !== undefined) return { score: dated, drop: cursor.text };
  throw invalid(cursor.kind, "is neither a token nor a drop of this timeline, and carries no date");
}

interface Reading {
  readonly query: Query;
  readonly deadline: number;
}

interface Read {
  readonly run: Run;
  readonly outcome: Outcome;
}

/** Between our answer and the caller's deadline there must be time for the answer to travel, more in a process under load. */
const MARGIN_MIN_MS = 50;
const MARGIN_MAX_MS = SECOND;
const MARGIN_SHARE = 0.1;

/** A page that is degraded anyway waits no longer than this for what can still be had. */
const PATIENCE_MS = SECOND;

/** When to answer a caller who stops waiting at `asked`, in ms since the epoch. */
function answerBy({ deadlineMaxMs }: ReadDeps, asked: number): number {
  const left = Math.min(asked - Date.now(), deadlineMaxMs);
  return Date.now() + left - Math.min(MARGIN_MAX_MS, Math.max(MARGIN_MIN_MS, left * MARGIN_SHARE));
}

/** Reads a run that is complete, or says that it is not. */
async function readComplete(deps: ReadDeps, timeline: Timeline, reading: Reading): Promise<Read> {
  const deadline = answerBy(deps, reading.deadline);
  const below = timeline.beyond && noting(timeline.beyond({ deadline }));
  const query = { ...reading.query, ...(below ? { beyond: below.beyond } : {}) };
  const read = (): Promise<Run> => within(readRun(deps, timeline.key, query), deadline);
  try {
    const run = await read();
    return { run, outcome: below?.whole(run.slice(0, reading.query.count - 1)) ? "beyond" : "hit" };
  } catch (error) {
    if (!(error instanceof Incomplete)) return degrade(deps, timeline, { ...reading, deadline, error });
  }
  try {
    await within(deps.rebuild(timeline.key, timeline.snapshot), deadline);
    return { run: await read(), outcome: "rebuilt" };
  } catch (error) {
    return degrade(deps, timeline, { ...reading, deadline, error });
  }
}

/** Notes what is read below the floor. */
function noting(beyond: Beyond): { readonly beyond: Beyond; whole(page: Run): boolean } {
  let asked = false;
  const below = new Set<string>();
  const noted = async (reading: Promise<Run>): Promise<Run> => {
    asked = true;
    const run = await reading;
    for (const { drop } of run) below.add(drop);
    return run;
  };
  return {
    beyond: {
      older: (from, query) => noted(beyond.older(from, query)),
      newer: (query, top) => noted(beyond.newer(query, top)),
    },
    whole: (page) => asked && page.every(({ drop }) => below.has(drop)),
  };
}

/** Waits for work that goes on by itself when the caller's time is over. */
async function within<T>(work: Promise<T>, deadline: number): Promise<T> {
  const over = new AbortController();
  const late = pause(Math.max(0, deadline - Date.now()), over.signal).then(() => {
    throw new AppError("deadline", "the timeline is still being rebuilt");
  });
  late.catch(() => undefined);
  work.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    over.abort();
  }
}

/** What can be had while something is away: what is stored, else what the upstreams say. */
async function degrade(
  deps: ReadDeps,
  timeline: Timeline,
  reading: Reading & { readonly error: unknown },
): Promise<Read> {
  const { query, deadline, error } = reading;
  if (codeOf(error) === "invalid") throw error;
  deps.log.warn({ timeline: timeline.name, error: oneLine(error) }, "a page is degraded");
  const stored = (await storedRun(deps, timeline.key, query)) ?? [];
  const { beyond } = timeline;
  if (!beyond || query.direction === "newer" || stored.length >= query.count)
    return { run: stored, outcome: "degraded" };
  const top = query.below ?? { score: Number.MAX_SAFE_INTEGER - 1, drop: "" };
  const soon = Math.min(deadline, Date.now() + PATIENCE_MS);
  if (soon <= Date.now()) return { run: stored, outcome: "degraded" };
  const asking = beyond({ deadline: soon, tolerant: true }).older(top, query);
  const had = await within(asking, soon).catch(() => []);
  return { run: merged(stored, had).slice(0, query.count), outcome: "degraded" };
}

/** Both, newest first, each drop once. */
function merged(stored: Run, had: Run): Run {
  const entries = new Map([...stored, ...had].map((entry) => [entry.drop, entry]));
  return [...entries.values()].sort((a, b) => compareEntries(b, a));
}

async function storedRun(deps: ReadDeps, key: string, query: Query): Promise<Run | undefined> {
  const store: TimelineStore = {
    ...deps.store,
    read: async (stretch) => ({ ...(await deps.store.read(stretch)), floor: 0 }),
  };
  return readRun({ store, fences: deps.fences }, key, query).catch(() => undefined);
}

function present(run: Run, how: { page: PageRequest; newestFirst: boolean; degraded: boolean }): GetTimelineResponse {
  const { limit, cursor } = how.page;
  const nearest = run.slice(0, limit);
  const entries = how.newestFirst ? nearest : nearest.toReversed();
  const [newest, oldest] = [entries[0], entries.at(-1)];
  return {
    drop_ids: entries.map(({ drop }) => drop),
    has_more: run.length > limit,
    next_max_id: oldest ? toToken(oldest) : (cursor?.text ?? ""),
    prev_min_id: newest ? toToken(newest) : (cursor?.text ?? ""),
    degraded: how.degraded,
  };
}
