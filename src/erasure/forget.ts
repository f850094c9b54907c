import { type Person, peopleOf, personOf } from "../contracts/people.js";
import { chunked, grouped } from "../kernel/concurrency.js";
import { AppError, throwIfStopping } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { createBatch } from "../kernel/sharing.js";
import { MINUTE, pause, SECOND, sharedNow } from "../kernel/time.js";
import type { Deletion, Erased, Fences, Forget, State } from "../state/index.js";

export interface ForgetDeps
  extends Pick<State["erasure"], "readOwn" | "forgetUnfollowersOf" | "removeAll">,
    Pick<Erased, "reports"> {
  readonly endStreams: (person: Person) => Promise<void>;
  readonly leavePulled: (user: string) => Promise<void>;
  /** Resolves to when the oldest event that is not applied yet was admitted, in ms since the epoch. */
  readonly readBacklogStart: () => Promise<number>;
  /** Yields pages of drops of the user that are listed or stored somewhere still. */
  readonly drops: (user: string) => AsyncIterable<readonly string[]>;
  readonly fences: Pick<Fences, "recordTombstones" | "removeDeleted">;
  readonly resetStreams: (users: readonly string[], erased: readonly Person[]) => Promise<void>;
  readonly removeMessages: (people: readonly Person[], stopping: AbortSignal) => Promise<void>;
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

/** Bounds what a walk looks for in each key. */
const MOST_TOGETHER = 64;

interface Member extends Person {
  readonly stopping: AbortSignal;
  readonly left: (keys: number) => Promise<void>;
}

/** Undefined for a member that is forgotten. */
type Failure = { readonly error: unknown } | undefined;

/**
 * Makes the function that forgets a user in Redis and NATS. The marker is recorded before.
 *
 * 1. The user's event streams end, and nobody pulls the user any more.
 * 2. The posts part, if it runs here, deletes the user's drops first. Users who come while others are forgotten wait, and
 *    are forgotten together: they share what follows.
 * 3. All events that were admitted before are applied, since a process that did not know the marker may have them in
 *    hand. Later no process writes in the users' names.
 * 4. The drops that are left somewhere get tombstones: rebuilds and backfills under way look for these after they have
 *    written.
 * 5. A walk over all keys of Redis removes what names the users, and their drops. Event streams of those who had them get
 *    a reset.
 * 6. Dead letters, stored notifications and checks that name the users are removed. Jobs need not be: they are void.
 */
export function createForget(deps: ForgetDeps): Forget {
  const together = createBatch(MOST_TOGETHER, (members: readonly Member[]) => forgetTogether(deps, members));
  return async (user, { stopping, left: report }) => {
    const person = personOf(user);
    await deps.endStreams(person);
    await deps.leavePulled(user);
    await failpoint("timelines-streams-ended", user);
    await untilPostsAreDone(deps, user, stopping);
    const failure = await together({ ...person, stopping, left: seldom(report) });
    if (failure) throw failure.error;
  };
}

async function forgetTogether(deps: ForgetDeps, members: readonly Member[]): Promise<readonly Failure[]> {
  const stopping = AbortSignal.any(members.map((member) => member.stopping));
  const failures = new Map<string, Failure>();
  const going = (): Member[] => members.filter(({ user }) => !failures.has(user));
  const users = (): string[] => going().map(({ user }) => user);
  await untilApplied(deps, stopping);
  await failpoint("timelines-applied", ...users());
  for (const user of users())
    await recordListed(deps, user, stopping).catch((error: unknown) => failures.set(user, { error }));
  throwIfStopping(stopping, FORGOTTEN);
  if (going().length === 0) return members.map(({ user }) => failures.get(user));
  await failpoint("timelines-fenced", ...users());
  for (const user of await removeFromRedis(deps, going(), stopping)) {
    const error = new AppError("unavailable", "each walk found further drops of the erased user", { subject: user });
    failures.set(user, { error });
  }
  await failpoint("timelines-walked", ...users());
  await deps.removeMessages(going(), stopping);
  await failpoint("timelines-forgotten", ...users());
  return members.map(({ user }) => failures.get(user));
}

async function untilPostsAreDone({ reports }: ForgetDeps, user: string, stopping: AbortSignal): Promise<void> {
  for (let waited = 0; ; ) {
    const posts = (await reports(user)).get("posts");
    if (posts === undefined || posts.done) return;
    throwIfStopping(stopping, FORGOTTEN);
    if (waited >= MOST_WAIT_MS)
      throw new AppError("unavailable", "the posts of the erased user are not deleted yet", { subject: user });
    const ms = Math.min(SECOND, POLL_MS + waited);
    await pause(ms, stopping);
    waited += ms;
  }
}

async function untilApplied({ readBacklogStart }: ForgetDeps, stopping: AbortSignal): Promise<void> {
  const since = sharedNow() + CLOCKS_APART_MS;
  while ((await readBacklogStart()) <= since) {
    throwIfStopping(stopping, FORGOTTEN);
    await pause(POLL_MS, stopping);
  }
}

async function recordListed(deps: ForgetDeps, user: string, stopping: AbortSignal): Promise<void> {
  for await (const drops of deps.drops(user)) {
    await recordDrops(deps, user, drops);
    throwIfStopping(stopping, FORGOTTEN);
  }
}

async function recordDrops({ fences }: ForgetDeps, author: string, drops: readonly string[]): Promise<void> {
  const time = sharedNow();
  const deletions = drops.map((drop): Deletion => ({ drop, author, time }));
  for (const chunk of chunked(deletions, TOMBSTONES_A_CALL)) await fences.recordTombstones(chunk);
}

/** Resolves to the users of whom each walk found further drops. */
async function removeFromRedis(
  deps: ForgetDeps,
  members: readonly Member[],
  stopping: AbortSignal,
): Promise<readonly string[]> {
  const people = peopleOf(members);
  const users = [...people.users];
  // Fences that were lost are refilled first: they have the users' drops.
  await deps.fences.removeDeleted(new Map(users.map((user) => [user, []])));
  for (const user of users) await deps.forgetUnfollowersOf(user);
  const context = {
    stopping,
    left: async (keys: number) => void (await Promise.all(members.map(({ left: report }) => report(keys)))),
    lost: (owners: readonly string[]) => deps.resetStreams(owners, people.all),
  };
  let unknown = new Map<string, (readonly [string, string])[]>();
  for (let walks = 0; walks < MOST_WALKS; walks++) {
    const ownDrops = await deps.readOwn(users);
    const met = new Map<string, string>();
    await deps.removeAll({ ...people, ...ownDrops, met: (drop, user) => void met.set(drop, user) }, context);
    const known = await ownDrops.ownAmong([...met.keys()]);
    unknown = grouped(
      [...met].filter(([drop]) => !known.has(drop)),
      ([, user]) => user,
    );
    if (unknown.size === 0) break;
    for (const [user, drops] of unknown)
      await recordDrops(
        deps,
        user,
        drops.map(([drop]) => drop),
      );
  }
  return [...unknown.keys()];
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
