import { AppError, throwIfStopping } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { countdown, pause, SECOND } from "../kernel/time.js";
import type { Forget } from "../state/index.js";
import type { DropsDeps } from "./drops/deps.js";
import { dropDeleted } from "./drops/events.js";
import { isUri } from "./drops/request.js";
import { ROWS_AT_ONCE } from "./erasure.sql.js";
import type { LinkDeps } from "./remote/deps.js";
import { unlinkDropsOf } from "./remote/links.js";
import type { PostsStore } from "./store.sql.js";

interface ForgetDeps extends Pick<DropsDeps, "wakeRelay" | "now"> {
  readonly config?: LinkDeps["config"];
  readonly store: PostsStore;
}

const LOOK_EVERY_MS = SECOND / 5;

/**
 * Maximum time to wait for the relay, ms. Afterwards the event of the erasure is retried: another process may have the
 * relay, or NATS be full.
 */
const PUBLISHED_WITHIN_MS = 30 * SECOND;

interface Erasure extends ForgetDeps {
  readonly user: string;
  readonly stopping: AbortSignal;
  readonly removed: (rows: number) => Promise<void>;
}

/**
 * Forgets an erased user. The marker refuses every write that begins from now on; those that began before are waited
 * for. Only deletions of drops have events. Tombstones name the user until these are published, since timelines
 * need the author.
 */
export const createForget =
  (deps: ForgetDeps): Forget =>
  async (user, { stopping, left: report }) => {
    const { erasure } = deps.store;
    await erasure.mark(user);
    let rows = await erasure.left(user);
    const removed = (count: number): Promise<void> => {
      rows = Math.max(0, rows - count);
      return report(rows);
    };
    await report(rows);
    for (const [name, step] of Object.entries(STEPS)) {
      await failpoint("posts-forgetting", name);
      await step({ ...deps, user, stopping, removed });
    }
  };

const STEPS: Readonly<Record<string, (erasure: Erasure) => Promise<void>>> = {
  older: ({ store, stopping }) => store.erasure.untilOlderEnded(stopping),
  drops: async (erasure) => {
    await removeDrops(erasure);
    await removeRemoteDrops(erasure);
  },
  reposts: async (erasure) => {
    const { store, wakeRelay, user } = erasure;
    await untilNone(erasure, () => store.reposts.removeOfAuthor(user, ROWS_AT_ONCE));
    wakeRelay("posts");
  },
  purge: purgeTombstones,
  reactions: async (erasure) => {
    const { store, user, removed } = erasure;
    await untilNone(erasure, () => store.remoteReactions.removeOfActor(user, ROWS_AT_ONCE));
    await untilNone(erasure, async () => {
      const reactions = await store.erasure.removeReactions(user);
      if (reactions > 0) await removed(reactions);
      return reactions;
    });
  },
  recipients: async (erasure) => {
    const { store, user } = erasure;
    await untilNone(erasure, () => store.erasure.leaveDrops(user));
    await untilNone(erasure, () => store.erasure.leaveRemoteDrops(user));
    await untilNone(erasure, () => store.erasure.leaveMentions(user));
    await untilNone(erasure, () => store.erasure.leaveRemoteMentions(user));
    await untilNone(erasure, () => store.erasure.leaveReplies(user));
  },
  keys: (erasure) => untilNone(erasure, () => erasure.store.erasure.removeKeys(erasure.user)),
  published: untilPublished,
  tombstones: async (erasure) => {
    const { store, user } = erasure;
    await untilNone(erasure, () => store.erasure.blankDrops(user));
    await untilNone(erasure, () => store.erasure.blankReposts(user));
  },
  events: removeEvents,
};

const throwIfErasureStops = ({ stopping }: Erasure): void => throwIfStopping(stopping, "the user is forgotten");

async function untilNone(erasure: Erasure, remove: () => Promise<number>): Promise<void> {
  do throwIfErasureStops(erasure);
  while ((await remove()) > 0);
}

async function removeDrops(erasure: Erasure): Promise<void> {
  const { store, wakeRelay, user, removed } = erasure;
  for (let below: string | undefined; ; ) {
    throwIfErasureStops(erasure);
    const drops = await store.erasure.removeDrops(user, below);
    if (drops.lowest === undefined) return;
    below = drops.lowest;
    wakeRelay("posts");
    await removed(drops.removed);
  }
}

/** The tombstone of an actor keeps its objects out. Only an actor has a URI. */
async function removeRemoteDrops(erasure: Erasure): Promise<void> {
  const { store, wakeRelay, user } = erasure;
  if (!isUri(user)) return;
  await store.remote.remove(user, dropDeleted(user));
  const drops = { limit: ROWS_AT_ONCE, actorUri: user, eventOf: dropDeleted };
  await untilNone(erasure, () => store.remote.removeDropsOfDeleted(drops));
  await untilNone(erasure, () => unlinkDropsOf(erasure, user, ROWS_AT_ONCE));
  wakeRelay("posts");
}

/** The maintenance purges tombstones, too, but later. */
async function purgeTombstones(erasure: Erasure): Promise<void> {
  const { store, user } = erasure;
  let after: string | undefined;
  for (;;) {
    const ids = await store.erasure.unpurged(user, after);
    if (ids.length === 0) return;
    await untilNone(erasure, () => store.cleanup.purge(ids, ROWS_AT_ONCE));
    after = ids.at(-1);
  }
}

async function untilPublished(erasure: Erasure): Promise<void> {
  const { store, wakeRelay, user, stopping } = erasure;
  const timeLeft = countdown(PUBLISHED_WITHIN_MS);
  while (await store.erasure.isUnpublished(user)) {
    throwIfErasureStops(erasure);
    if (timeLeft() === 0) throw new AppError("unavailable", "events that name an erased user wait to be published");
    wakeRelay("posts");
    await pause(LOOK_EVERY_MS, stopping);
  }
}

async function removeEvents(erasure: Erasure): Promise<void> {
  const { store, user } = erasure;
  for (let after: number | undefined = 0; after !== undefined; ) {
    throwIfErasureStops(erasure);
    after = await store.erasure.removeEvents(user, after);
  }
}
