import { type Fences, writeUnlessDeleted } from "../records/fences.js";
import { type Due, isPushed, type Published, type PulledAuthors, type PullState } from "../records/pulled.js";
import type { Apply, Change } from "./apply.js";
import { audienceOf } from "./audience.js";
import type { Listeners } from "./listeners.redis.js";
import type { Trace } from "./publish.nats.js";
import type { AuthorWriter } from "./pulled.redis.js";
import type { TimelineWriter } from "./writer.redis.js";

/** Fan-out uses only this of the registry of pulled authors. */
export interface Pulled extends PulledAuthors {
  /** Begins to pull, tier or push an author if their followers or drops require it. */
  updateStates(published: readonly Published[]): Promise<void>;
  due(): Promise<Due[]>;
  /** Ends a step: gives the author the next state, unless somebody else has changed it. */
  proceed(of: Due): Promise<void>;
}

/** A change planned in one state need not be planned again in the other; pushed authors have none. */
export function covers(planned: PullState | undefined, now: PullState | undefined): boolean {
  if (isPushed(planned)) return isPushed(now);
  return planned !== "pulled" || now === "pulled";
}

interface ToAuthorDeps {
  readonly fences: Pick<Fences, "tombstonedAmong" | "retentionStart">;
  readonly writer: Pick<TimelineWriter, "addHome" | "removeHomeNoted">;
  readonly authors: Pick<AuthorWriter, "add" | "removeNoted">;
}

/** Adds a drop to the timeline of its author, and to the author's own home. */
export async function addToAuthor(
  { fences, writer, authors }: ToAuthorDeps,
  change: Change,
  { includeAuthor }: { readonly includeAuthor: boolean },
): Promise<void> {
  const { user_id: author, drop_id: drop, created_at: score } = change;
  if (score < fences.retentionStart()) return;
  const audience = audienceOf(includeAuthor ? [author] : []);
  await writeUnlessDeleted([drop], {
    write: () =>
      Promise.all([authors.add(author, { drop, score }), writer.addHome([{ audience, entries: [{ drop, score }] }])]),
    tombstonedAmong: fences.tombstonedAmong,
    remove: () =>
      Promise.all([authors.removeNoted(author, drop), writer.removeHomeNoted([{ audience, drops: [drop] }])]),
  });
}

interface ToListenersDeps {
  readonly apply: Pick<Apply, "toListeners" | "toRecentUnfollowers" | "complete">;
  readonly listeners: Pick<Listeners, "count">;
}

interface Notified {
  readonly change: Change;
  readonly includeAuthor: boolean;
  readonly trace?: Trace;
}

/**
 * Notifies those who listen to a pulled author, by the index of listeners, which completes a publication. Returns the
 * number of followers; undefined where it is not known, or is one page, or more users listen: then nobody is notified.
 */
export async function toListeners(
  { apply, listeners }: ToListenersDeps,
  { change, includeAuthor, trace }: Notified,
  pages: AsyncIterable<{ readonly only: boolean; readonly total?: number | undefined }>,
): Promise<number | undefined> {
  for await (const { only, total } of pages) {
    if (only || total === undefined || (await listeners.count()) > total) return undefined;
    await apply.toListeners({ change, audience: audienceOf(includeAuthor ? [change.user_id] : []), trace });
    if (change.action === "remove") return total;
    await apply.toRecentUnfollowers(change);
    await apply.complete([{ change, trace, size: { recipients: includeAuthor ? total + 1 : total, chunks: 1 } }]);
    return total;
  }
  return undefined;
}
