import { type ErasureEvent, parseStored } from "../../contracts/events.js";
import type { ErasurePart } from "../../contracts/subjects.js";
import type { DropPage } from "../../contracts/timelines.js";
import type { Version } from "../../contracts/versions.js";
import type { Handler } from "../../delivery/handler.js";
import { AppError, throwIfStopping } from "../../kernel/errors.js";
import { failpoint } from "../../kernel/failpoints.js";

/** Progress of a part with an erased user. */
export interface ErasureReport {
  readonly done: boolean;
  readonly left: number;
}

/**
 * Erased users. The bucket ERASED keeps them for ever, regardless of the versions of later events; Redis has a copy.
 * Every method rejects with AppError `unavailable` while a server is away.
 */
export interface Erased {
  among(users: readonly string[]): Promise<ReadonlySet<string>>;
  /**
   * Marks a user as erased. Once this resolves, every process reads the marker. Resolves to false, and marks nobody, if
   * the event was admitted (ms since the epoch) before the erasure of a remote actor was lifted.
   */
  record(user: string, version: Version, admittedAt?: number): Promise<boolean>;
  /** Notes that a part forgets users here, so that erasures wait for its reports even while it does not run. */
  announce(part: ErasurePart): Promise<void>;
  report(user: string, part: ErasurePart, report: ErasureReport): Promise<void>;
  /** Resolves to the reports of all parts that forget users here. A part that has not reported yet is not done. */
  reports(user: string): Promise<ReadonlyMap<ErasurePart, ErasureReport>>;
}

/**
 * Leaves out reposts of the drops of erased users, and lets replies to them name nobody: the upstream may be slow to
 * forget them.
 */
export async function withoutErasedOriginals(
  { among }: Pick<Erased, "among">,
  { drops, next }: DropPage,
): Promise<DropPage> {
  const named = drops.flatMap(({ repost_author, reply_to_author }) => [repost_author, reply_to_author]);
  const users = new Set(named.filter((user) => user !== ""));
  if (users.size === 0) return { drops, next };
  const gone = await among([...users]);
  if (gone.size === 0) return { drops, next };
  const kept = drops.filter(({ repost_author }) => !gone.has(repost_author));
  const unnamed = kept.map((drop) => (gone.has(drop.reply_to_author) ? { ...drop, reply_to_author: "" } : drop));
  return { drops: unnamed, next };
}

interface UserWrite<T> {
  readonly write: () => Promise<T>;
  readonly remove: () => Promise<unknown>;
}

/**
 * Writes for a user, unless the user is erased. An erasure sets its marker before it scans: either the scan finds what
 * was written, or the second question here finds the marker.
 *
 * @throws AppError `notfound` if the user is erased
 */
export async function writeUnlessErased<T>(
  { among }: Pick<Erased, "among">,
  user: string,
  { write, remove }: UserWrite<T>,
): Promise<T> {
  const isErased = async (): Promise<boolean> => (await among([user])).has(user);
  const refusal = (): AppError => new AppError("notfound", "user_id: the user is erased");
  if (await isErased()) throw refusal();
  const [result] = await Promise.allSettled([write()]);
  if (await isErased()) {
    await remove();
    throw refusal();
  }
  if (result.status === "rejected") throw result.reason;
  return result.value;
}

interface ForgettingContext {
  readonly stopping: AbortSignal;
  readonly left: (count: number) => Promise<void>;
}

/**
 * Removes all that names a user. May run twice, beside itself, and after a crash. Rejects with AppError `unavailable`
 * while it has to wait.
 */
export type Forget = (user: string, context: ForgettingContext) => Promise<void>;

/**
 * Ends a step after which a Forget may begin anew.
 *
 * @throws AppError `unavailable` once the process stops
 */
export async function endStep(step: string, stopping: AbortSignal): Promise<void> {
  await failpoint("forgetting", step);
  throwIfStopping(stopping, "the user is forgotten");
}

/** Returns true for a remote actor, whose id is the URI of their document. */
export const isRemoteActor = (user: string): boolean => user.includes("://");

/**
 * Returns a queue for work about users that runs `atOnce` at a time. People come before remote actors: a federation
 * deletes hundreds of those an hour.
 */
export function peopleFirst(atOnce: number) {
  const waiting: { readonly user: string; readonly begin: () => void }[] = [];
  let running = 0;
  const beginNext = (): void => {
    const person = waiting.findIndex(({ user }) => !isRemoteActor(user));
    waiting.splice(Math.max(0, person), 1)[0]?.begin();
  };
  return async <T>(user: string, work: () => Promise<T>): Promise<T> => {
    running += 1;
    if (running > atOnce) await new Promise<void>((begin) => void waiting.push({ user, begin }));
    try {
      return await work();
    } finally {
      running -= 1;
      beginNext();
    }
  };
}

/**
 * Returns the handler of erasure events, which forgets `atOnce` users at a time. A repeated event forgets the user again.
 */
export function createForgetHandler(erased: Erased, part: ErasurePart, forget: Forget, atOnce: number): Handler {
  const inOrder = peopleFirst(atOnce);
  return async ({ subject, body, time }, { stopping }) => {
    const { user_id: user, version } = (parseStored(subject, body, time) as ErasureEvent).payload;
    if (!(await erased.record(user, version, time))) return;
    const context = { stopping, left: (count: number) => erased.report(user, part, { done: false, left: count }) };
    await inOrder(user, () => forget(user, context));
    await erased.report(user, part, { done: true, left: 0 });
  };
}
