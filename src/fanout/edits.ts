import type { EditEvent } from "../contracts/events.js";
import { type Byline, bylineText } from "../contracts/timelines.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { sharedNow } from "../kernel/time.js";
import { usersOf } from "../state/index.js";
import type { AudienceNotification, FanoutDeps } from "./deps.js";
import type { FollowerCache } from "./plan.js";
import type { Trace } from "./publish.nats.js";
import { tellSharedEdits } from "./shared.js";

export interface AdmittedEdit {
  readonly event: EditEvent;
  /** Time of the admission, in ms since the epoch. */
  readonly admitted_at: number;
  /** True: nobody is notified. */
  readonly silent: true | undefined;
  readonly trace?: Trace;
}

interface TellEdits {
  readonly single: (edit: AdmittedEdit) => Promise<void>;
  /** Returns the edits of which not all listeners are notified. */
  readonly batch: (edits: readonly AdmittedEdit[]) => Promise<readonly AdmittedEdit[]>;
}

type EditDeps = FanoutDeps & { readonly followers: FollowerCache };

/**
 * Maximum number of revisions of a drop, the newest, that a batch notifies of. Somebody who edits one drop all the time
 * must neither keep NOTIFY busy nor displace other notifications, of which it keeps 128 a user.
 */
const REVISIONS_A_BATCH = 4;
const AUTHORS_AT_ONCE = 16;

/**
 * Notifies listeners of edits of drops that they have. Edits of one author share the look-up of listeners.
 *
 * **An edit follows its `new_drop`.** A home may have a drop before its user is notified of it, but then the drop is
 * noted as being published. The note is read after the homes: without one, whoever has the drop was notified before, or
 * their home was rebuilt from the posts service before a process noted the drop. An edit that finds a note waits.
 *
 * **An edit after the deletion** finds a tombstone. If it found none just before, the gateway leaves it out.
 */
export function createTellEdits(deps: EditDeps): TellEdits {
  return {
    single: async (edit) => {
      if (isNew(edit)) await tell(deps, [edit]);
    },
    batch: async (edits) => {
      const newest = [...grouped(edits.filter(isNew), dropOf).values()].flatMap(newestOf);
      const ofAuthors = [...grouped(newest, ({ event }) => event.payload.user_id).values()];
      // Handled alone, an edit fails with its own error.
      const untold = await mapLimited(ofAuthors, AUTHORS_AT_ONCE, (all) =>
        tell(deps, all).then(
          () => [],
          () => all,
        ),
      );
      return untold.flat();
    },
  };
}

const isNew = ({ silent, admitted_at }: AdmittedEdit): boolean =>
  !silent && sharedNow() - admitted_at <= NOTIFY_WINDOW_MS;
const dropOf = ({ event }: AdmittedEdit): string => event.payload.drop_id;
const revisionOf = ({ event }: AdmittedEdit): number => event.payload.revision;
const newestOf = (edits: readonly AdmittedEdit[]): AdmittedEdit[] =>
  edits.toSorted((a, b) => revisionOf(a) - revisionOf(b)).slice(-REVISIONS_A_BATCH);

/** @throws AppError `unavailable` if one of the drops is being published */
async function tell(deps: EditDeps, edits: readonly AdmittedEdit[]): Promise<void> {
  const { authors, listeners, writer } = deps;
  await tellSharedEdits(deps, edits);
  const author = edits[0]?.event.payload.user_id as string;
  // Homes are merged with the timeline of a pulled author.
  const pulled = await authors.holdingAmong(author, edits.map(dropOf));
  const ofPulled = edits.filter((edit) => pulled.has(dropOf(edit)));
  if (ofPulled.length > 0)
    await listeners.visit(author, (users) =>
      announce(deps, ofPulled, {
        havingAmong: (drop) => writer.aboveFloorAmong(users, pulled.get(drop)?.score ?? 0),
        bylineOf: (drop) => pulled.get(drop)?.by,
      }),
    );
  for await (const users of audienceOf(deps, author))
    await announce(deps, edits, { havingAmong: (drop) => writer.havingAmong(users, drop), bylineOf: () => undefined });
}

/**
 * Yields the listeners among an author's followers, or all users who listen if these are fewer than the followers; and
 * the lists with the author that listen.
 */
async function* audienceOf(
  { fences, followers, listeners, listenersAmong }: EditDeps,
  author: string,
): AsyncGenerator<readonly string[]> {
  const generation = (await fences.generations([author])).get(author) as string;
  for await (const { ids, readers, only, total } of followers.pages({ author, generation, includeAuthor: true })) {
    if (!only && (total === undefined || (await listeners.count()) <= total)) {
      yield* listeners.pages(author);
      return;
    }
    const users = usersOf({ ids, readers });
    const isListening = await listenersAmong([users]);
    if (isListening) yield users.filter(isListening);
  }
}

interface Having {
  /** Returns the listeners who have a drop. */
  readonly havingAmong: (drop: string) => Promise<readonly string[]>;
  /** Returns the byline if it decides about who has the drop: a home leaves out some replies. */
  readonly bylineOf: (drop: string) => Byline | undefined;
}

async function announce(
  { fences, publishing, notify }: EditDeps,
  edits: readonly AdmittedEdit[],
  { havingAmong, bylineOf }: Having,
): Promise<void> {
  const drops = [...new Set(edits.map(dropOf))];
  const having = new Map(await Promise.all(drops.map(async (drop) => [drop, await havingAmong(drop)] as const)));
  const had = drops.filter((drop) => having.get(drop)?.length);
  if (had.length === 0) return;
  const [open, deleted] = await Promise.all([publishing.among(had), fences.tombstonedAmong(had)]);
  const [waiting] = open.filter((drop) => !deleted.has(drop));
  if (waiting !== undefined) {
    const subject = edits[0]?.event.payload.user_id;
    throw new AppError("unavailable", "an edited drop is still being published", { subject });
  }
  await notify(
    edits.flatMap((edit): AudienceNotification[] => {
      const { drop_id, user_id, revision } = edit.event.payload;
      const to = having.get(drop_id) ?? [];
      if (to.length === 0 || deleted.has(drop_id)) return [];
      const by = bylineOf(drop_id) ?? { author: user_id };
      const notification = { event: "drop_edited", drop_id, revision, by: bylineText(by) } as const;
      return [{ users: to, notification, by, trace: edit.trace }];
    }),
  );
}
