import type { BoundedQueue } from "../kernel/concurrency.js";
import { codeOf } from "../kernel/errors.js";
import { compareBytes, encodeId } from "../kernel/ids.js";
import { SingleFlight } from "../kernel/sharing.js";
import type { ListCache, ListName } from "../state/index.js";
import { observeUsers } from "./observe.js";
import type { ListStore } from "./reads.sql.js";

interface ListPage {
  readonly ids: readonly string[];
  readonly total: number;
}

interface ListsDeps {
  readonly store: ListStore;
  readonly cache: ListCache;
  readonly isErased: (user: string) => Promise<boolean>;
  readonly bounded: BoundedQueue;
  readonly maxCachedIds: number;
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
 * No read returns outdated data. Only reads with the same generation of a list share a query. A change raises the
 * generation before its event is published or its call answered: a read after either finds the new one.
 */
export function createReadList(deps: ListsDeps): ReadList {
  const { cache, maxCachedIds } = deps;
  const flights = new SingleFlight<Whole>();
  return async (request) => {
    const { list, user, after, limit } = request;
    const cached = await orUncached(list, () => cache.read(list, user, after, limit));
    if (cached === undefined) {
      // A query in flight may be too old to share if the generation is not known.
      observeUsers.read(list, "uncached");
      const [ids, total] = await Promise.all([limit === 0 ? [] : readIds(deps, request), readTotal(deps, request)]);
      return { ids, total };
    }
    const { ids, total, generation } = cached;
    if (total !== undefined && (limit === 0 || ids !== undefined)) {
      observeUsers.read(list, "cache");
      return { ids: ids ?? [], total };
    }
    observeUsers.read(list, "database");
    const flight = `${list}:${encodeId(user)}:${generation}`;
    if (limit === 0) {
      const counted = await flights.run(`${flight}:total`, () => fillTotal(deps, request, generation));
      return { ids: [], total: counted.total };
    }
    const isLong = total !== undefined && total > maxCachedIds;
    const whole = isLong ? { total } : await flights.run(flight, () => fillWhole(deps, request, generation));
    return { ids: whole.ids ? pageOf(whole.ids, request) : await readIds(deps, request), total: whole.total };
  };
}

const readIds = ({ store, bounded }: ListsDeps, { list, user, after, limit }: ListRequest): Promise<string[]> =>
  bounded(() => store.ids(list, user, after, limit));

const readTotal = ({ store, bounded }: ListsDeps, { list, user }: ListRequest): Promise<number> =>
  bounded(() => store.count(list, user));

/** The ids are unset if they are too many to be cached. */
interface Whole {
  readonly ids?: readonly string[];
  readonly total: number;
}

async function fillWhole(deps: ListsDeps, request: ListRequest, generation: string): Promise<Whole> {
  const { cache, maxCachedIds } = deps;
  const { list, user } = request;
  const ids = await readIds(deps, { list, user, after: "", limit: maxCachedIds + 1 });
  if (ids.length > maxCachedIds) return fillTotal(deps, request, generation);
  if (ids.length === 0 && (await forgottenIfErased(deps, request))) return { ids, total: 0 };
  await filled(list, () => cache.fill(list, user, generation, ids));
  return { ids, total: ids.length };
}

async function fillTotal(deps: ListsDeps, request: ListRequest, generation: string): Promise<Whole> {
  const { list, user } = request;
  const total = await readTotal(deps, request);
  if (total === 0 && (await forgottenIfErased(deps, request))) return { total };
  await filled(list, () => deps.cache.fillTotal(list, user, generation, total));
  return { total };
}

/** The read itself stored a generation of the list. Of an erased user it is removed again. */
async function forgottenIfErased(
  { cache, isErased, bounded }: ListsDeps,
  { list, user }: ListRequest,
): Promise<boolean> {
  if (!(await bounded(() => isErased(user)))) return false;
  await orUncached(list, () => cache.forget(user));
  return true;
}

async function filled(list: ListName, fill: () => Promise<boolean>): Promise<void> {
  if ((await orUncached(list, fill)) === false) observeUsers.superseded(list);
}

function pageOf(ids: readonly string[], { after, limit }: ListRequest): readonly string[] {
  const from = after === "" ? 0 : ids.findIndex((id) => compareBytes(id, after) > 0);
  return from < 0 ? [] : ids.slice(from, from + limit);
}

async function orUncached<Result>(what: string, ask: () => Promise<Result>): Promise<Result | undefined> {
  try {
    return await ask();
  } catch (error) {
    observeUsers.cacheFailed(`${what}: ${codeOf(error)}`);
    return undefined;
  }
}
