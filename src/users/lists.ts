import { codeOf } from "../kernel/errors.js";
import { compareBytes, encodeId } from "../kernel/ids.js";
import { SingleFlight } from "../kernel/single-flight.js";
import type { Bounded } from "./bounded.js";
import type { HotPages } from "./hot-pages.js";
import type { IdPage, ListCache, ListName, ListStore, ObserveUsers, RememberedList } from "./ports.js";

/** What lists are read from. */
export interface ListsDeps {
  readonly store: ListStore;
  readonly cache: ListCache;
  readonly pages: HotPages;
  readonly bounded: Bounded;
  /** Longer lists are not remembered whole. */
  readonly mostRemembered: number;
  readonly observe: Pick<ObserveUsers, "read" | "overtaken" | "cacheFailed">;
}

/** Which part of which list. */
export interface ListRequest {
  readonly list: ListName;
  readonly user: string;
  /** Ids after this one; "" from the start. */
  readonly after: string;
  /** At most so many; 0 asks for the total only. */
  readonly limit: number;
}

/** Queries under way. */
interface Flights {
  readonly page: SingleFlight<IdPage>;
  readonly whole: SingleFlight<Whole>;
}

/** Reads part of a list with its total. @throws AppError `unavailable` while the database is away */
export type ReadList = (request: ListRequest) => Promise<IdPage>;

/**
 * Reads lists: pages of this process first, then what all processes remember, then the database.
 *
 * Nothing outdated is ever handed out. Every read asks for the list's generation itself, after it was called; what this
 * process keeps is used only under it, and only reads that found the same one share a query. Since a change bumps the
 * generation before anybody is told of it, whoever was told reads after the bump.
 */
export function createReadList(deps: ListsDeps): ReadList {
  const flights: Flights = { page: new SingleFlight(), whole: new SingleFlight() };
  return async (request) => {
    const name = request.list;
    const kept = await keptPage(deps, request);
    if (kept) return told(deps, name, "process", kept);
    const remembered = await quietly(deps, name, () =>
      deps.cache.read(request.list, request.user, request.after, request.limit),
    );
    // Without the cache nobody can say whether a query under way is young enough to be shared.
    if (remembered === undefined) return told(deps, name, "uncached", await direct(deps, request));
    const { ids, total, generation } = remembered;
    if (ids !== undefined && total !== undefined)
      return told(deps, name, "cache", keep(deps, request, generation, { ids, total }));
    const page = await query(deps, flights, request, remembered);
    return told(deps, name, "database", keep(deps, request, generation, page));
  };
}

function told(deps: ListsDeps, list: ListName, from: Parameters<ObserveUsers["read"]>[1], page: IdPage): IdPage {
  deps.observe.read(list, from);
  return page;
}

const pageKey = ({ list, user, after, limit }: ListRequest): string => `${list}:${limit}:${encodeId(user)}:${after}`;

async function keptPage(deps: ListsDeps, request: ListRequest): Promise<IdPage | undefined> {
  const kept = deps.pages.get(pageKey(request));
  if (kept === undefined) return undefined;
  const stands = await quietly(deps, request.list, () => deps.cache.generation(request.list, request.user));
  return stands === kept.generation ? kept.page : undefined;
}

function keep(deps: ListsDeps, request: ListRequest, generation: string, page: IdPage): IdPage {
  deps.pages.offer(pageKey(request), { generation, page });
  return page;
}

/** A whole list; without ids where it is too long to be read at once. */
interface Whole {
  readonly ids?: readonly string[];
  readonly total: number;
}

/** Reads the database for what is not remembered; reads that found the same generation share the query. */
async function query(
  deps: ListsDeps,
  flights: Flights,
  request: ListRequest,
  { generation, total }: RememberedList,
): Promise<IdPage> {
  const { limit, after } = request;
  const flight = `${request.list}:${encodeId(request.user)}:${generation}`;
  if (limit === 0) {
    const counted =
      total ?? (await flights.whole.run(`${flight}:count`, () => fillCount(deps, request, generation))).total;
    return { ids: [], total: counted };
  }
  const page = (of: number): Promise<IdPage> =>
    flights.page.run(`${flight}:${limit}:${after}`, () => readPage(deps, request, of));
  if (total !== undefined && total > deps.mostRemembered) return page(total);
  const whole = await flights.whole.run(flight, () => fillWhole(deps, request, generation));
  return whole.ids ? { ids: cut(whole.ids, request), total: whole.total } : page(whole.total);
}

async function readPage({ store, bounded }: ListsDeps, request: ListRequest, total: number): Promise<IdPage> {
  const { list, user, after, limit } = request;
  return { ids: await bounded(() => store.ids(list, user, after, limit)), total };
}

/** Reads and stores a whole list; of one that is too long only its count. */
async function fillWhole(deps: ListsDeps, request: ListRequest, generation: string): Promise<Whole> {
  const { store, cache, bounded, mostRemembered } = deps;
  const { list, user } = request;
  const ids = await bounded(() => store.ids(list, user, "", mostRemembered + 1));
  if (ids.length > mostRemembered) return fillCount(deps, request, generation);
  await filled(deps, list, () => cache.fill(list, user, generation, ids));
  return { ids, total: ids.length };
}

async function fillCount(deps: ListsDeps, { list, user }: ListRequest, generation: string): Promise<Whole> {
  const count = await deps.bounded(() => deps.store.count(list, user));
  await filled(deps, list, () => deps.cache.fillCount(list, user, generation, count));
  return { total: count.total };
}

async function filled(deps: ListsDeps, list: ListName, fill: () => Promise<boolean>): Promise<void> {
  if ((await quietly(deps, list, fill)) === false) deps.observe.overtaken(list);
}

/** Reads the database as if there were no cache. */
async function direct({ store, bounded }: ListsDeps, { list, user, after, limit }: ListRequest): Promise<IdPage> {
  const [ids, { total }] = await Promise.all([
    limit === 0 ? [] : bounded(() => store.ids(list, user, after, limit)),
    bounded(() => store.count(list, user)),
  ]);
  return { ids, total };
}

/** The part of a whole list that was asked for. */
function cut(ids: readonly string[], { after, limit }: ListRequest): readonly string[] {
  let [from, to] = [0, ids.length];
  while (after !== "" && from < to) {
    const middle = (from + to) >> 1;
    if (compareBytes(ids[middle] as string, after) <= 0) from = middle + 1;
    else to = middle;
  }
  return ids.slice(from, from + limit);
}

/** What the cache says; undefined where it is away. */
async function quietly<Result>(
  deps: ListsDeps,
  list: ListName,
  ask: () => Promise<Result>,
): Promise<Result | undefined> {
  try {
    return await ask();
  } catch (error) {
    deps.observe.cacheFailed(`${list}: ${codeOf(error)}`);
    return undefined;
  }
}
