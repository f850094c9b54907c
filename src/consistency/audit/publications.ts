import type { FanoutCompleted } from "../../contracts/fanout.js";
import { belongsHome } from "../../contracts/timelines.js";
import { type Drop, Visibility } from "../../gen/avion/posts.js";
import { encodeId } from "../../kernel/ids.js";
import type { Logger } from "../../kernel/logger.js";
import { pause } from "../../kernel/time.js";
import { type AuditDeps, untilApplied } from "./audit.js";
import type { Auditor, TimelineName } from "./auditor.js";

/** `kept`: a deleted drop is still there. `skipped`: nothing can be said of it, or it was not its turn. */
export type PublicationResult = "same" | "lost" | "kept" | "undecided" | "skipped" | "failed";

export interface StoredEntry {
  readonly floor: number | undefined;
  readonly score: number | undefined;
}

export interface PublicationDeps
  extends Pick<AuditDeps, "tombstonedAmong" | "readBacklogStart">,
    Pick<Auditor, "repair"> {
  readonly readEntry: (timeline: TimelineName, drop: string) => Promise<StoredEntry>;
  /** Followers at random, out of a list of about so many pages. */
  readonly sampleFollowers: (author: string, pages: number) => Promise<readonly string[]>;
  readonly findDrop: (author: string, drop: string, createdAt: number) => Promise<Drop | undefined>;
  readonly unfollowedAmong: (author: string, users: readonly string[]) => Promise<readonly string[]>;
  readonly maybeLost: () => boolean;
  readonly recheckMs: number;
}

const SHARED: readonly TimelineName[] = [
  { kind: "local", name: "local" },
  { kind: "global", name: "global" },
];

/** A timeline is wrong only if a second look finds so too, made when every event admitted meanwhile is applied. */
export async function checkPublication(
  deps: PublicationDeps,
  completed: FanoutCompleted,
  { log, stopping }: { readonly log: Logger; readonly stopping: AbortSignal },
): Promise<PublicationResult> {
  const first = await look(deps, completed);
  if (first === undefined) return "skipped";
  if (first.length === 0) return "same";
  await pause(deps.recheckMs, stopping);
  if (!(await untilApplied(deps.readBacklogStart, Date.now(), stopping))) return "undecided";
  const wrong = await look(deps, completed, first);
  if (wrong === undefined) return "skipped";
  if (wrong.length === 0) return "same";
  const result = completed.event === "drop_deleted" ? "kept" : "lost";
  log.warn(
    { drop: encodeId(completed.drop_id), timelines: wrong.map(({ name }) => encodeId(name)), result },
    "timelines differ from a publication; they are rebuilt",
  );
  for (const timeline of wrong) await deps.repair(timeline);
  return result;
}

/** The wrong timelines among those given, or among a sample; undefined if nothing can be said. */
async function look(
  deps: PublicationDeps,
  completed: FanoutCompleted,
  timelines?: readonly TimelineName[],
): Promise<readonly TimelineName[] | undefined> {
  if (deps.maybeLost()) return undefined;
  return completed.event === "drop_deleted"
    ? lookForDeleted(deps, completed, timelines)
    : lookForPublished(deps, completed, timelines);
}

async function lookForDeleted(
  deps: PublicationDeps,
  { drop_id, user_id, chunks }: FanoutCompleted,
  timelines?: readonly TimelineName[],
): Promise<readonly TimelineName[]> {
  const homes = async (): Promise<TimelineName[]> =>
    user_id === "" ? [] : [user_id, ...(await deps.sampleFollowers(user_id, chunks))].map(homeOf);
  const sample = timelines ?? [...SHARED, ...(await homes())];
  return filtered(deps, sample, drop_id, ({ score }) => score !== undefined);
}

async function lookForPublished(
  deps: PublicationDeps,
  completed: FanoutCompleted,
  timelines?: readonly TimelineName[],
): Promise<readonly TimelineName[] | undefined> {
  const { drop_id, user_id, chunks } = completed;
  // Without an author, the upstreams cannot be asked who may see it.
  if (user_id === "" || (await deps.tombstonedAmong([drop_id])).has(drop_id)) return undefined;
  const drop = await deps.findDrop(user_id, drop_id, completed.created_at);
  if (!drop) return undefined;
  const sample = timelines ?? [...sharedOf(drop, completed), ...(await homesOf(deps, drop, { completed, chunks }))];
  const createdAt = Math.min(drop.created_at, completed.created_at);
  // A timeline without a floor is rebuilt by its next read; below the floor it holds nothing.
  const absent = await filtered(
    deps,
    sample,
    drop_id,
    ({ floor, score }) =>
      score === undefined && floor !== undefined && floor >= 0 && (floor === 0 || createdAt > floor),
  );
  const users = absent.filter(({ kind }) => kind === "home").map(({ name }) => name);
  const unfollowers = new Set(users.length === 0 ? [] : await deps.unfollowedAmong(user_id, users));
  return absent.filter(({ kind, name }) => kind !== "home" || !unfollowers.has(name));
}

async function homesOf(
  deps: PublicationDeps,
  drop: Drop,
  { completed, chunks }: { readonly completed: FanoutCompleted; readonly chunks: number },
): Promise<readonly TimelineName[]> {
  const author = completed.user_id;
  const followers = await deps.sampleFollowers(author, chunks);
  // The author of a remote drop has no home here.
  const own = completed.event === "drop_created" ? [author] : [];
  return [...own, ...followers.filter((user) => user !== author && belongsHome(drop, user))].map(homeOf);
}

function sharedOf({ visibility }: Drop, { event }: FanoutCompleted): readonly TimelineName[] {
  if (visibility !== Visibility.PUBLIC) return [];
  return event === "drop_created" ? SHARED : SHARED.filter(({ kind }) => kind === "global");
}

const homeOf = (user: string): TimelineName => ({ kind: "home", name: user });

async function filtered(
  { readEntry }: PublicationDeps,
  timelines: readonly TimelineName[],
  drop: string,
  wrong: (entry: StoredEntry) => boolean,
): Promise<readonly TimelineName[]> {
  const entries = await Promise.all(timelines.map((timeline) => readEntry(timeline, drop)));
  return timelines.filter((_, index) => wrong(entries[index] as StoredEntry));
}
