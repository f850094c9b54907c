import { parseJson } from "../../contracts/events.js";
import { FANOUT_COMPLETED, type FanoutCompleted } from "../../contracts/fanout.js";
import type { HeldDrop } from "../../contracts/timelines.js";
import { type Byline, belongsHome, entryOfDrop } from "../../contracts/timelines.js";
import { understood } from "../../contracts/untrusted.js";
import type { Context, Delivery, DeliveryOutcome, Process } from "../../delivery/handler.js";
import { type Drop, Visibility } from "../../gen/avion/posts.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { codeOf, oneLine } from "../../kernel/errors.js";
import { encodeId } from "../../kernel/ids.js";
import type { Logger } from "../../kernel/logger.js";
import { MINUTE, pause, SECOND, sharedNow } from "../../kernel/time.js";
import type { ReadEntry, StoredEntry } from "../../state/index.js";
import { contextOf, inSpan } from "../../telemetry/spans.js";
import { type AuditDeps, isOpen, type TimelineName, untilApplied } from "./audit.js";

/**
 * Result of a check. `kept`: a deleted drop still exists; `skipped`: the state is unknown or the rate limit was
 * reached.
 */
export type PublicationResult = "same" | "lost" | "kept" | "undecided" | "skipped" | "failed";

export interface PublicationDeps extends Pick<AuditDeps, "tombstonedAmong" | "readUnapplied"> {
  /** Rebuilds a timeline. `foundAt` is by the clock of `performance.now`. */
  readonly repair: (timeline: TimelineName, foundAt: number) => Promise<void>;
  /** Finds the drop of an author as a reader would. */
  readonly readEntry: ReadEntry;
  /** Returns random followers, out of a list of about this number of pages. */
  readonly sampleFollowers: (author: string, pages: number) => Promise<readonly string[]>;
  readonly findDrop: (drop: HeldDrop) => Promise<Drop | undefined>;
  readonly unfollowedAmong: (author: string, users: readonly string[]) => Promise<readonly string[]>;
  /** Resolves to the reason why a home leaves out a drop. Rejects if it is not known whom the user hides. */
  readonly hides: (user: string, by: Byline) => Promise<"relation" | "reply" | undefined>;
  /** True: local and global leave out replies to others. */
  readonly judgesReplies: boolean;
  readonly maybeLost: () => boolean;
  readonly recheckMs: number;
}

const HOMES_AT_ONCE = 8;

const SHARED: readonly TimelineName[] = [
  { kind: "local", name: "local" },
  { kind: "global", name: "global" },
];

/**
 * Checks a publication. A timeline is wrong only if a second check confirms it, once every event admitted meanwhile is
 * applied.
 */
export async function checkPublication(
  deps: PublicationDeps,
  completed: FanoutCompleted,
  { log, stopping }: { readonly log: Logger; readonly stopping: AbortSignal },
): Promise<PublicationResult> {
  const first = await look(deps, completed);
  if (first === undefined) return "skipped";
  if (first.length === 0) return "same";
  const foundAt = performance.now();
  await pause(deps.recheckMs, stopping);
  const waiting = await untilApplied(deps.readUnapplied, sharedNow(), stopping);
  if (!waiting) return "undecided";
  const wrongNow = await look(deps, completed, first);
  if (wrongNow === undefined) return "skipped";
  if (wrongNow.length === 0) return "same";
  const wrong = wrongNow.filter(({ name }) => !isOpen(waiting, name, completed.drop_id));
  if (wrong.length === 0) return "undecided";
  const result = completed.event === "drop_deleted" ? "kept" : "lost";
  log.warn(
    { drop: encodeId(completed.drop_id), timelines: wrong.map(({ name }) => encodeId(name)), result },
    "timelines differ from a publication; they are rebuilt",
  );
  for (const timeline of wrong) await deps.repair(timeline, foundAt);
  return result;
}

/** Returns the wrong timelines among those given, or among a sample; undefined if nothing can be said. */
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
  return filtered(deps, sample, { drop_id, user_id }, ({ score }) => score !== undefined);
}

async function lookForPublished(
  deps: PublicationDeps,
  completed: FanoutCompleted,
  timelines?: readonly TimelineName[],
): Promise<readonly TimelineName[] | undefined> {
  const { drop_id, user_id } = completed;
  // If the author is unknown, the upstreams cannot be asked who may see the drop.
  if (user_id === "" || (await deps.tombstonedAmong([drop_id])).has(drop_id)) return undefined;
  const drop = await deps.findDrop({ author: user_id, drop: drop_id, createdAt: completed.created_at });
  if (!drop) return undefined;
  const sample = timelines ?? [...sharedOf(deps, drop, completed), ...(await homesOf(deps, drop, completed))];
  const createdAt = Math.min(drop.created_at, completed.created_at);
  // A timeline without a floor is rebuilt by its next read; below the floor it holds nothing.
  const absent = await filtered(
    deps,
    sample,
    completed,
    ({ floor, score, remoteFloor = 0 }) =>
      score === undefined &&
      floor !== undefined &&
      floor >= 0 &&
      (floor === 0 || createdAt > floor) &&
      (completed.event === "drop_created" || createdAt > remoteFloor),
  );
  const users = absent.filter(({ kind }) => kind === "home").map(({ name }) => name);
  const unfollowers = new Set(users.length === 0 ? [] : await deps.unfollowedAmong(user_id, users));
  const missing = absent.filter(({ kind, name }) => kind !== "home" || !unfollowers.has(name));
  const { by } = entryOfDrop(drop);
  const hidden = await mapLimited(missing, HOMES_AT_ONCE, async ({ kind, name }) =>
    kind === "home" ? deps.hides(name, by) : undefined,
  );
  return missing.filter((_, index) => !hidden[index]);
}

async function homesOf(
  deps: PublicationDeps,
  drop: Drop,
  { event, user_id: author, chunks }: FanoutCompleted,
): Promise<readonly TimelineName[]> {
  const followers = await deps.sampleFollowers(author, chunks);
  // The author of a remote drop has no home here.
  const authors = event === "drop_created" ? [author] : [];
  return [...authors, ...followers.filter((user) => user !== author && belongsHome(drop, user))].map(homeOf);
}

function sharedOf({ judgesReplies }: PublicationDeps, drop: Drop, { event }: FanoutCompleted): readonly TimelineName[] {
  if (drop.visibility !== Visibility.PUBLIC || drop.repost_of !== "") return [];
  if (judgesReplies && entryOfDrop(drop).by.parent !== undefined) return [];
  return event === "drop_created" ? SHARED : SHARED.filter(({ kind }) => kind === "global");
}

const homeOf = (user: string): TimelineName => ({ kind: "home", name: user });

async function filtered(
  { readEntry }: PublicationDeps,
  timelines: readonly TimelineName[],
  { drop_id, user_id }: Pick<FanoutCompleted, "drop_id" | "user_id">,
  wrong: (entry: StoredEntry) => boolean,
): Promise<readonly TimelineName[]> {
  const entries = await Promise.all(timelines.map((timeline) => readEntry(timeline, drop_id, user_id)));
  return timelines.filter((_, index) => wrong(entries[index] as StoredEntry));
}

/**
 * Maximum age of a publication, and of its drop, that is checked. The audit loop checks others: an import takes no
 * checks from new drops.
 */
const OLDEST_MS = 10 * MINUTE;
const MOST_TRIES = 3;
const RETRY_MS = 5 * SECOND;

const isOld = ({ landed_at, admitted_at, created_at }: FanoutCompleted): boolean =>
  sharedNow() - landed_at > OLDEST_MS || admitted_at - created_at > OLDEST_MS;

type Observe = (result: PublicationResult, count?: number) => void;

export interface PublicationChecks {
  /**
   * Maximum number of publications that a process checks a second; others are skipped. A check is some reads of Redis.
   */
  readonly rate: number;
  /**
   * Time from the last write of a publication to its check, and from that to a second one: other writes may be under
   * way.
   */
  readonly delayMs: number;
}

export const PUBLICATION_CHECKS: PublicationChecks = { rate: 20, delayMs: 3 * SECOND };

interface SampleDeps {
  readonly observe: Observe;
  readonly rate: number;
}

/** Chooses publications to be checked: at most `rate` a second and at a time (a token bucket). */
export function createSample({ observe, rate }: SampleDeps) {
  let tokens = rate;
  let refilledAt = performance.now();
  return (all: readonly FanoutCompleted[]): ReadonlySet<FanoutCompleted> => {
    const now = performance.now();
    tokens = Math.min(rate, tokens + ((now - refilledAt) / SECOND) * rate);
    refilledAt = now;
    const chosen = new Set(all.filter((completed) => tokens >= 1 && !isOld(completed) && tokens-- >= 1));
    if (chosen.size < all.length) observe("skipped", all.length - chosen.size);
    return chosen;
  };
}

interface ChecksDeps {
  readonly check: (completed: FanoutCompleted, context: Context) => Promise<PublicationResult>;
  readonly observe: Observe;
  /** Time from the last write to the check, ms. */
  readonly delayMs: number;
}

/**
 * Handles checks. A message is acked after its check, so that another process takes over the checks of one that died.
 */
export function createChecks(deps: ChecksDeps): Process {
  return async (delivery, context) => {
    const completed = completedIn(delivery, context);
    if (completed === undefined || isOld(completed)) {
      deps.observe(completed ? "skipped" : "failed");
      return { kind: "ack" };
    }
    const sinceLanded = Math.max(0, sharedNow() - completed.landed_at);
    await pause(Math.max(0, deps.delayMs - sinceLanded), context.stopping);
    if (context.stopping.aborted) return { kind: "release" };
    return inSpan("audit publication", { parent: contextOf(delivery.headers) }, () =>
      checked(deps, { completed, delivery, context }),
    );
  };
}

/** Returns undefined for a message that was published by hand: it is not worth a dead letter. */
function completedIn({ body, seq }: Delivery, { log }: Context): FanoutCompleted | undefined {
  try {
    return understood(FANOUT_COMPLETED, parseJson(body));
  } catch (error) {
    log.error({ seq, error: oneLine(error) }, "a message in CHECKS cannot be parsed; it is removed");
    return undefined;
  }
}

async function checked(
  { check, observe }: ChecksDeps,
  {
    completed,
    delivery,
    context,
  }: {
    readonly completed: FanoutCompleted;
    readonly delivery: Delivery;
    readonly context: Context;
  },
): Promise<DeliveryOutcome> {
  const { stopping, log } = context;
  try {
    const result = await check(completed, context);
    if (stopping.aborted && result === "undecided") return { kind: "release" };
    observe(result);
  } catch (error) {
    if (codeOf(error) === "unavailable" && delivery.deliveries < MOST_TRIES)
      return { kind: "retry", delayMs: RETRY_MS };
    log.warn({ error: oneLine(error) }, "a publication could not be checked");
    observe("failed");
  }
  return { kind: "ack" };
}
