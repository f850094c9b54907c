import type { FanoutCompleted } from "../../contracts/notifications.js";
import { belongsHome } from "../../contracts/timelines.js";
import { type Drop, Visibility } from "../../gen/avion/posts.js";
import { encodeId } from "../../kernel/ids.js";
import type { Logger } from "../../kernel/logger.js";
import { MINUTE, pause } from "../../kernel/time.js";
import type { PublicationDeps, StoredEntry, TimelinePlace } from "./ports.js";
import { settled } from "./settled.js";

/** `kept`: a deleted drop is still there. `skipped`: nothing can be said of it, or there is no turn for it. */
export type PublicationResult = "same" | "lost" | "kept" | "undecided" | "skipped" | "failed";

/** Events may wait this long before nothing is said of a publication. */
const PATIENCE_MS = MINUTE;

const SHARED: readonly TimelinePlace[] = [
  { kind: "local", name: "local" },
  { kind: "global", name: "global" },
];

/**
 * Looks into some timelines that must hold a drop, or must not hold it any
 * more, and repairs those that are wrong. What is wrong counts only where a
 * second look finds it too, taken once everything admitted meanwhile is applied.
 */
export async function checkPublication(
  deps: PublicationDeps,
  completed: FanoutCompleted,
  { log, stopping }: { readonly log: Logger; readonly stopping: AbortSignal },
): Promise<PublicationResult> {
  const first = await look(deps, completed);
  if (first === undefined) return "skipped";
  if (first.length === 0) return "same";
  await pause(deps.recheckMs, stopping);
  if (!(await settled(deps.readBacklogStart, { since: Date.now(), patienceMs: PATIENCE_MS, stopping })))
    return "undecided";
  const wrong = await look(deps, completed, first);
  if (wrong === undefined) return "skipped";
  if (wrong.length === 0) return "same";
  const result = completed.event === "drop_deleted" ? "kept" : "lost";
  log.warn(
    { drop: encodeId(completed.drop_id), timelines: wrong.map(({ name }) => encodeId(name)), result },
    "timelines are not as a publication left them; they are rebuilt",
  );
  for (const place of wrong) await deps.repair(place);
  return result;
}

/** The timelines that are wrong, of a sample or of those given; undefined where nothing can be said. */
async function look(
  deps: PublicationDeps,
  completed: FanoutCompleted,
  places?: readonly TimelinePlace[],
): Promise<readonly TimelinePlace[] | undefined> {
  // What Redis lost is applied again from the log.
  if (deps.maybeLost()) return undefined;
  return completed.event === "drop_deleted"
    ? lookForDeleted(deps, completed, places)
    : lookForPublished(deps, completed, places);
}

async function lookForDeleted(
  deps: PublicationDeps,
  { drop_id, user_id, chunks }: FanoutCompleted,
  places?: readonly TimelinePlace[],
): Promise<readonly TimelinePlace[]> {
  const homes = async (): Promise<TimelinePlace[]> =>
    user_id === "" ? [] : [user_id, ...(await deps.sampleFollowers(user_id, chunks))].map(homeOf);
  const sample = places ?? [...SHARED, ...(await homes())];
  return filtered(deps, sample, drop_id, ({ score }) => score !== undefined);
}

async function lookForPublished(
  deps: PublicationDeps,
  completed: FanoutCompleted,
  places?: readonly TimelinePlace[],
): Promise<readonly TimelinePlace[] | undefined> {
  const { drop_id, user_id, chunks } = completed;
  // Without an author the upstreams cannot be asked who may see it.
  if (user_id === "" || (await deps.tombstonedAmong([drop_id])).has(drop_id)) return undefined;
  const drop = await deps.findDrop(user_id, drop_id, completed.created_at);
  if (!drop) return undefined;
  const sample = places ?? [...sharedOf(drop, completed), ...(await homesOf(deps, drop, { completed, chunks }))];
  const createdAt = Math.min(drop.created_at, completed.created_at);
  // A timeline without a floor is rebuilt by its next read; below it nothing is held.
  const absent = await filtered(
    deps,
    sample,
    drop_id,
    ({ floor, score }) =>
      score === undefined && floor !== undefined && floor >= 0 && (floor === 0 || createdAt > floor),
  );
  const users = absent.filter(({ kind }) => kind === "home").map(({ name }) => name);
  const left = new Set(users.length === 0 ? [] : await deps.unfollowedAmong(user_id, users));
  return absent.filter(({ kind, name }) => kind !== "home" || !left.has(name));
}

async function homesOf(
  deps: PublicationDeps,
  drop: Drop,
  { completed, chunks }: { readonly completed: FanoutCompleted; readonly chunks: number },
): Promise<readonly TimelinePlace[]> {
  const author = completed.user_id;
  const followers = await deps.sampleFollowers(author, chunks);
  // The author of a remote drop has no home here.
  const own = completed.event === "drop_created" ? [author] : [];
  return [...own, ...followers.filter((user) => user !== author && belongsHome(drop, user))].map(homeOf);
}

function sharedOf({ visibility }: Drop, { event }: FanoutCompleted): readonly TimelinePlace[] {
  if (visibility !== Visibility.PUBLIC) return [];
  return event === "drop_created" ? SHARED : SHARED.filter(({ kind }) => kind === "global");
}

const homeOf = (user: string): TimelinePlace => ({ kind: "home", name: user });

async function filtered(
  { readEntry }: PublicationDeps,
  places: readonly TimelinePlace[],
  drop: string,
  wrong: (entry: StoredEntry) => boolean,
): Promise<readonly TimelinePlace[]> {
  const entries = await Promise.all(places.map((place) => readEntry(place, drop)));
  return places.filter((_, index) => wrong(entries[index] as StoredEntry));
}
