import { LRUCache } from "lru-cache";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { codeOf } from "../kernel/errors.js";
import { compareBytes, encodeId } from "../kernel/ids.js";
import { SingleFlight } from "../kernel/sharing.js";
import { type Clock, SECOND } from "../kernel/time.js";
import type { ListCache } from "./cache.redis.js";
import type { ObserveUsers } from "./observe.js";
import type { ListName, ListStore } from "./reads.sql.js";

interface ListPage {
  readonly ids: readonly string[];
  readonly total: number;
}

interface ListsDeps {
  readonly store: ListStore;
  readonly cache: ListCache;
  readonly pages: HotPages;
  readonly bounded: BoundedQueue;
  readonly maxCachedIds: number;
  readonly observe: Pick<ObserveUsers, "read" | "superseded" | "cacheFailed">;
}

interface ListRequest {
  readonly list: ListName;
  readonly user: string;
  readonly after: string;
  /** 0 asks for the total only. */
  readonly limit: number;
}

/** @throws AppError `unavailable` while the database is unavailable */
export type ReadList = (request: ListRequest) => Promise<ListPage>;

/**
 * Reads lists from pages of this process, then from the cache of all processes, then from the database.
 *
 * No read returns outdated data. Every read asks for the list's generation itself; a page of this process is used only
 * under that generation, and only reads with the same generation share a query. A change raises the generation before
 * its event is published or its call answered, so that a read after either finds the new generation.
 */
export function createReadList(deps: ListsDeps): ReadList {
  const flights = { page: new SingleFlight<ListPage>(), whole: new SingleFlight<Whole>() };
  return async (request) => {
    const { list, user, after, limit } = request;
    const answer = (from: Parameters<ObserveUsers["read"]>[1], page: ListPage): ListPage => {
      deps.observe.read(list, from);
      return page;
    };
    const kept = await keptPage(deps, request);
    if (kept) return answer("process", kept);
    const cached = await orUncached(deps.observe, list, () => deps.cache.read(list, user, after, limit));
    // A query in flight may be too old to share where the generation is not known.
    if (cached === undefined) return answer("uncached", await queryUncached(deps, request));
    const { ids, total, generation } = cached;
    if (ids !== undefined && total !== undefined)
      return answer("cache", keep(deps, request, generation, { ids, total }));
    const page = await queryOnce(deps, flights, request, cached);
    return answer("database", keep(deps, request, generation, page));
  };
}

const pageKey = ({ list, user, after, limit }: ListRequest): string => `${list}:${limit}:${encodeId(user)}:${after}`;

async function keptPage(deps: ListsDeps, request: ListRequest): Promise<ListPage | undefined> {
  const kept = deps.pages.get(pageKey(request));
  if (kept === undefined) return undefined;
  const current = await orUncached(deps.observe, request.list, () => deps.cache.generation(request.list, request.user));
  return current === kept.generation ? kept.page : undefined;
}

function keep(deps: ListsDeps, request: ListRequest, generation: string, page: ListPage): ListPage {
  deps.pages.offer(pageKey(request), { generation, page });
  return page;
}

interface Whole {
  readonly ids?: readonly string[];
  readonly total: number;
}

async function queryOnce(
  deps: ListsDeps,
  flights: { readonly page: SingleFlight<ListPage>; readonly whole: SingleFlight<Whole> },
  request: ListRequest,
  { generation, total }: Awaited<ReturnType<ListCache["read"]>>,
): Promise<ListPage> {
  const { limit, after } = request;
  const flight = `${request.list}:${encodeId(request.user)}:${generation}`;
  if (limit === 0) {
    const size =
      total ?? (await flights.whole.run(`${flight}:count`, () => fillCount(deps, request, generation))).total;
    return { ids: [], total: size };
  }
  const page = (of: number): Promise<ListPage> =>
    flights.page.run(`${flight}:${limit}:${after}`, () => readPage(deps, request, of));
  if (total !== undefined && total > deps.maxCachedIds) return page(total);
  const whole = await flights.whole.run(flight, () => fillWhole(deps, request, generation));
  return whole.ids ? { ids: pageOf(whole.ids, request), total: whole.total } : page(whole.total);
}

async function readPage({ store, bounded }: ListsDeps, request: ListRequest, total: number): Promise<ListPage> {
  const { list, user, after, limit } = request;
  return { ids: await bounded(() => store.ids(list, user, after, limit)), total };
}

/** Reads and caches a whole list; of one that is too long only its count. */
async function fillWhole(deps: ListsDeps, request: ListRequest, generation: string): Promise<Whole> {
  const { store, cache, bounded, maxCachedIds } = deps;
  const { list, user } = request;
  const ids = await bounded(() => store.ids(list, user, "", maxCachedIds + 1));
  if (ids.length > maxCachedIds) return fillCount(deps, request, generation);
  await filled(deps, list, () => cache.fill(list, user, generation, ids));
  return { ids, total: ids.length };
}

async function fillCount(deps: ListsDeps, { list, user }: ListRequest, generation: string): Promise<Whole> {
  const count = await deps.bounded(() => deps.store.count(list, user));
  await filled(deps, list, () => deps.cache.fillCount(list, user, generation, count));
  return { total: count.total };
}

async function filled(deps: ListsDeps, list: ListName, fill: () => Promise<boolean>): Promise<void> {
  if ((await orUncached(deps.observe, list, fill)) === false) deps.observe.superseded(list);
}

async function queryUncached(
  { store, bounded }: ListsDeps,
  { list, user, after, limit }: ListRequest,
): Promise<ListPage> {
  const [ids, { total }] = await Promise.all([
    limit === 0 ? [] : bounded(() => store.ids(list, user, after, limit)),
    bounded(() => store.count(list, user)),
  ]);
  return { ids, total };
}

function pageOf(ids: readonly string[], { after, limit }: ListRequest): readonly string[] {
  let [from, to] = [0, ids.length];
  while (after !== "" && from < to) {
    const middle = (from + to) >> 1;
    if (compareBytes(ids[middle] as string, after) <= 0) from = middle + 1;
    else to = middle;
  }
  return ids.slice(from, from + limit);
}

/** Resolves to undefined while Redis is unavailable. */
export async function orUncached<Result>(
  observe: Pick<ObserveUsers, "cacheFailed">,
  what: string,
  ask: () => Promise<Result>,
): Promise<Result | undefined> {
  try {
    return await ask();
  } catch (error) {
    observe.cacheFailed(`${what}: ${codeOf(error)}`);
    return undefined;
  }
}

interface KeptPage {
  readonly generation: string;
  readonly page: ListPage;
}

/** A page is kept once it was offered this often within a second. */
const OFFERS = 3;
const PAGES_COUNTED = 10_000;
/** The bound is for all pages together: about 50 MB at 36 bytes an id. */
const MAX_IDS = 250_000;

type HotPages = ReturnType<typeof createHotPages>;

/** Keeps pages that are read very often in this process. */
export function createHotPages(now: Clock = Date.now) {
  const pages = new LRUCache<string, KeptPage>({
    maxSize: MAX_IDS,
    sizeCalculation: ({ page }) => page.ids.length + 1,
  });
  const counted = new LRUCache<string, { readonly since: number; offers: number }>({ max: PAGES_COUNTED });
  const isHot = (key: string): boolean => {
    const count = counted.get(key);
    if (count === undefined || now() - count.since >= SECOND) {
      counted.set(key, { since: now(), offers: 1 });
      return false;
    }
    count.offers += 1;
    return count.offers >= OFFERS;
  };
  return {
    get: (key: string): KeptPage | undefined => pages.get(key),
    offer: (key: string, kept: KeptPage): void => {
      if (pages.has(key) || isHot(key)) pages.set(key, kept);
    },
  };
}
