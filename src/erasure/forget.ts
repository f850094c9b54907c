import type { ErasurePart } from "../contracts/subjects.js";
import { chunked } from "../kernel/concurrency.js";
import { AppError, throwIfStopping } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { MINUTE, pause, SECOND, sharedNow } from "../kernel/time.js";
import type { ErasureReport, Forget } from "../records/erasures.js";
import type { Deletion, Fences } from "../records/fences.js";
import type { Subject } from "./holdings.js";
import type { OwnAmong } from "./own-drops.redis.js";
import { type Person, personOf } from "./values.js";
import type { WalkContext } from "./walk.redis.js";

export interface ForgetDeps {
  readonly endStreams: (person: Person) => Promise<void>;
  readonly leavePulled: (user: string) => Promise<void>;
  readonly reports: (user: string) => Promise<ReadonlyMap<ErasurePart, ErasureReport>>;
  /** Resolves to when the oldest event that is not applied yet was admitted, in ms since the epoch. */
  readonly readBacklogStart: () => Promise<number>;
  /** Yields pages of drops of the user that are listed or stored somewhere still. */
  readonly drops: (user: string) => AsyncIterable<readonly string[]>;
  readonly fences: Pick<Fences, "recordTombstones" | "removeDeleted">;
  readonly readOwn: (user: string) => Promise<OwnAmong>;
  readonly forgetUnfollowersOf: (user: string) => Promise<void>;
  readonly removeAll: (subject: Subject, context: WalkContext) => Promise<void>;
  readonly resetStreams: (users: readonly string[], erased: Person) => Promise<void>;
  readonly removeMessages: (person: Person, stopping: AbortSignal) => Promise<void>;
}

const FORGOTTEN = "the user is forgotten";
const POLL_MS = SECOND / 4;
/** Another erasure gets the place of one that has waited for so long. */
const MOST_WAIT_MS = MINUTE;
/** The clocks of Redis and NATS may differ by so much. */
const CLOCKS_APART_MS = 3 * SECOND;
const REPORT_MS = SECOND;
const TOMBSTONES_A_CALL = 1_000;
/** A walk that meets further drops of the user is followed by another one, which removes these too. */
const MOST_WALKS = 3;

/**
 * Makes the function that forgets a user in Redis and NATS. The marker is recorded before.
 *
 * 1. The user's event streams end, and nobody pulls the user any more.
 * 2. The posts part, if it runs here, deletes the user's drops first. Then all events that were admitted before are applied,
 *    since a process that did not know the marker may have them in hand. Later no process writes in the user's name.
 * 3. The drops that are left somewhere get tombstones: rebuilds and backfills under way look for these after they have
 *    written.
 * 4. A walk over all keys of Redis removes what names the user, and their drops. Event streams of those who had them get
 *    a reset.
 * 5. Dead letters, stored notifications and checks that name the user are removed. Jobs need not be: they are void.
 */
export function createForget(deps: ForgetDeps): Forget {
  return async (user, { stopping, left }) => {
    const person = personOf(user);
    await deps.endStreams(person);
    await deps.leavePulled(user);
    await failpoint("timelines-streams-ended", user);
    await untilPostsAreDone(deps, user, stopping);
    await untilApplied(deps, stopping);
    await failpoint("timelines-applied", user);
    for await (const drops of deps.drops(user)) {
      await recordDrops(deps, user, drops);
      throwIfStopping(stopping, FORGOTTEN);
    }
    await failpoint("timelines-fenced", user);
    const lost = (users: readonly string[]) => deps.resetStreams(users, person);
    await removeFromRedis(deps, person, { stopping, left: seldom(left), lost });
    await failpoint("timelines-walked", user);
    await deps.removeMessages(person, stopping);
    await failpoint("timelines-forgotten", user);
  };
}

async function untilPostsAreDone({ reports }: ForgetDeps, user: string, stopping: AbortSignal): Promise<void> {
  for (let waited = 0; ; waited += POLL_MS) {
    const posts = (await reports(user)).get("posts");
    if (posts === undefined || posts.done) return;
    throwIfStopping(stopping, FORGOTTEN);
    if (waited >= MOST_WAIT_MS)
      throw new AppError("unavailable", "the posts of the erased user are not deleted yet", { subject: user });
    await pause(POLL_MS, stopping);
  }
}

async function untilApplied({ readBacklogStart }: ForgetDeps, stopping: AbortSignal): Promise<void> {
  const since = sharedNow() + CLOCKS_APART_MS;
  while ((await readBacklogStart()) <= since) {
    throwIfStopping(stopping, FORGOTTEN);
    await pause(POLL_MS, stopping);
  }
}

async function recordDrops({ fences }: ForgetDeps, author: string, drops: readonly string[]): Promise<void> {
  const time = sharedNow();
  const deletions = drops.map((drop): Deletion => ({ drop, author, time }));
  for (const some of chunked(deletions, TOMBSTONES_A_CALL)) await fences.recordTombstones(some);
}

async function removeFromRedis(deps: ForgetDeps, person: Person, context: WalkContext): Promise<void> {
  const { user } = person;
  // Fences that were lost are refilled first: they have the user's drops.
  await deps.fences.removeDeleted(new Map([[user, []]]));
  await deps.forgetUnfollowersOf(user);
  for (let walks = 0; walks < MOST_WALKS; walks++) {
    const ownAmong = await deps.readOwn(user);
    const met = new Set<string>();
    const subject = { ...person, ownAmong, met: (drop: string) => void met.add(drop) };
    await deps.removeAll(subject, context);
    const known = await ownAmong([...met]);
    const unknown = [...met].filter((drop) => !known.has(drop));
    if (unknown.length === 0) return;
    await recordDrops(deps, user, unknown);
  }
  throw new AppError("unavailable", "each walk found further drops of the erased user", { subject: user });
}

/** Each report is a message: one a second is enough. */
function seldom(report: (count: number) => Promise<void>): (count: number) => Promise<void> {
  let next = 0;
  return async (count) => {
    if (performance.now() < next) return;
    next = performance.now() + REPORT_MS;
    await report(count);
  };
}
