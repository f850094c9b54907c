import { z } from "zod";
import { parseJson } from "../../contracts/events.js";
import type { FanoutCompleted } from "../../contracts/fanout.js";
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
import type { ReadEntry, StoredEntry } from "../../state/entries/audited.redis.js";
import { contextOf, inSpan } from "../../telemetry/spans.js";
import { type AuditDeps, isOpen, type TimelineName, untilApplied } from "./audit.js";

/**
 * `kept` means that a deleted drop is still there; `skipped`, that the state is not known or the rate limit was
 * reached.
 */
export type PublicationResult = "same" | "lost" | "kept" | "undecided" | "skipped" | "failed";

export interface PublicationDeps extends Pick<AuditDeps, "tombstonedAmong" | "readUnapplied"> {
  /** `foundAt` is by the clock of `performance.now`. */
  readonly repair: (timeline: TimelineName, foundAt: number) => Promise<void>;
  /** Finds the drop of an author as a reader would. */
  readonly readEntry: ReadEntry;
  /** Returns followers at random, out of a list of about so many pages. */
  readonly sampleFollowers: (author: string, pages: number) => Promise<readonly string[]>;
  readonly findDrop: (held: HeldDrop) => Promise<Drop | undefined>;
  readonly unfollowedAmong: (author: string, users: readonly string[]) => Promise<readonly string[]>;
  /** Rejects where whom the user hides is not known. */
  readonly hides: (user: string, by: Byline) => Promise<boolean>;
  readonly maybeLost: () => boolean;
  readonly recheckMs: number;
}

const HOMES_AT_ONCE = 8;

const SHARED: readonly TimelineName[] = [
  { kind: "local", name: "local" },
  { kind: "global", name: "global" },
];

/** A timeline is wrong only if a second check finds it too, once every event admitted meanwhile is applied. */
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
  const found = await look(deps, completed, first);
  if (found === undefined) return "skipped";
  if (found.length === 0) return "same";
  const wrong = found.filter(({ name }) => !isOpen(waiting, name, completed.drop_id));
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
  // The upstreams cannot be asked who may see it if the author is not known.
  if (user_id === "" || (await deps.tombstonedAmong([drop_id])).has(drop_id)) return undefined;
  const drop = await deps.findDrop({ author: user_id, drop: drop_id, createdAt: completed.created_at });
  if (!drop) return undefined;
  const sample = timelines ?? [...sharedOf(drop, completed), ...(await homesOf(deps, drop, completed))];
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
    kind === "home" ? deps.hides(name, by) : false,
  );
  return missing.filter((_, at) => !hidden[at]);
}

async function homesOf(
  deps: PublicationDeps,
  drop: Drop,
  { event, user_id: author, chunks }: FanoutCompleted,
): Promise<readonly TimelineName[]> {
  const followers = await deps.sampleFollowers(author, chunks);
  // The author of a remote drop has no home here.
  const own = event === "drop_created" ? [author] : [];
  return [...own, ...followers.filter((user) => user !== author && belongsHome(drop, user))].map(homeOf);
}

function sharedOf({ visibility, repost_of }: Drop, { event }: FanoutCompleted): readonly TimelineName[] {
  if (visibility !== Visibility.PUBLIC || repost_of !== "") return [];
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

/** Older or backdated publications are left to the audit loop: an import takes no checks from new drops. */
const OLDEST_MS = 10 * MINUTE;
const MOST_TRIES = 3;
const RETRY_MS = 5 * SECOND;

const time = z.number();
const publication = z.object({
  ...{ event: z.string(), drop_id: z.string(), user_id: z.string(), recipients: z.number(), chunks: z.number() },
  ...{ created_at: time, admitted_at: time, landed_at: time, lag_ms: time },
});

const isOld = ({ landed_at, admitted_at, created_at }: FanoutCompleted): boolean =>
  sharedNow() - landed_at > OLDEST_MS || admitted_at - created_at > OLDEST_MS;

type Observe = (result: PublicationResult, count?: number) => void;

export interface PublicationChecks {
  /** A process checks at most so many publications a second, and skips others. A check is some reads of Redis. */
  readonly rate: number;
  /**
   * A check waits so long after the last write of a publication, and a second one as long after that: other writes may
   * be under way.
   */
  readonly delayMs: number;
}

export const PUBLICATION_CHECKS: PublicationChecks = { rate: 20, delayMs: 3 * SECOND };

interface SampleDeps {
  readonly observe: Observe;
  readonly rate: number;
}

/** Chooses publications to be checked: so many a second and as many at once (a token bucket). */
export function createSample({ observe, rate }: SampleDeps) {
  let left = rate;
  let at = performance.now();
  return (all: readonly FanoutCompleted[]): ReadonlySet<FanoutCompleted> => {
    const now = performance.now();
    left = Math.min(rate, left + ((now - at) / SECOND) * rate);
    at = now;
    const chosen = new Set(all.filter((one) => left >= 1 && !isOld(one) && left-- >= 1));
    if (chosen.size < all.length) observe("skipped", all.length - chosen.size);
    return chosen;
  };
}

interface ChecksDeps {
  readonly check: (completed: FanoutCompleted, context: Context) => Promise<PublicationResult>;
  readonly observe: Observe;
  /** The check waits so many ms after the last write. */
  readonly delayMs: number;
}

/** A message is acked after its check, so that another process takes over the checks of one that died. */
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

/** Returns undefined for what somebody has published by hand: it is not worth a dead letter. */
function completedIn({ body, seq }: Delivery, { log }: Context): FanoutCompleted | undefined {
  try {
    return understood(publication, parseJson(body));
  } catch (error) {
    log.error({ seq, error: oneLine(error) }, "a message in CHECKS cannot be parsed; it is removed");
    return undefined;
  }
}

async function checked(
  { check, observe }: ChecksDeps,
  of: { readonly completed: FanoutCompleted; readonly delivery: Delivery; readonly context: Context },
): Promise<DeliveryOutcome> {
  const { stopping, log } = of.context;
  try {
    const result = await check(of.completed, of.context);
    if (stopping.aborted && result === "undecided") return { kind: "release" };
    observe(result);
  } catch (error) {
    if (codeOf(error) === "unavailable" && of.delivery.deliveries < MOST_TRIES)
      return { kind: "retry", delayMs: RETRY_MS };
    log.warn({ error: oneLine(error) }, "a publication could not be checked");
    observe("failed");
  }
  return { kind: "ack" };
}
