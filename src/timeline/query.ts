import type { TimelineEntry } from "../contracts/timelines.js";
import { AppError, invalid } from "../kernel/errors.js";
import { dateOfId } from "../kernel/ids.js";
import { type Cursor, fromToken, type PageRequest } from "./page-request.js";
import type { Query } from "./pages.js";
import type { TimelineStore } from "./store.redis.js";
import { type Incomplete, incompleteOf, isIncomplete } from "./stored.js";

interface QueryDeps {
  readonly store: Pick<TimelineStore, "read" | "createdAt">;
  readonly maybeLost: () => boolean;
}

/** The entries that a request asks for; incomplete: the timeline must be rebuilt before the cursor's position is known. */
export async function queryOf(deps: QueryDeps, key: string, request: PageRequest): Promise<Query | Incomplete> {
  const { cursor, limit } = request;
  const position = cursor && (await positionOf(deps, key, cursor));
  if (position && isIncomplete(position)) return position;
  return {
    direction: cursor?.kind === "min_id" ? "newer" : "older",
    above: cursor?.kind === "max_id" ? undefined : position,
    below: cursor?.kind === "max_id" ? position : undefined,
    count: limit + 1,
  };
}

async function positionOf(
  { store, maybeLost }: QueryDeps,
  key: string,
  { kind, text }: Cursor,
): Promise<TimelineEntry | Incomplete> {
  const position = fromToken(text);
  if (position) return position;
  const at = (score: number): TimelineEntry => ({ score, drop: text });
  const dated = dateOfId(text);
  if (dated !== undefined) return at((await store.createdAt(key, text).catch(() => undefined)) ?? dated);
  const found = await store.createdAt(key, text);
  if (found !== undefined) return at(found);
  const { floor, pulled } = await store.read({ key, direction: "older", from: undefined, count: 1 });
  if (floor === undefined) return incompleteOf(key, pulled);
  // Another read may have completed the timeline meanwhile.
  const foundNow = await store.createdAt(key, text);
  if (foundNow !== undefined) return at(foundNow);
  if (maybeLost()) throw new AppError("unavailable", `${kind}: Redis may have lost the drop`);
  throw invalid(kind, "is neither a token nor a drop of this timeline, and carries no date");
}
