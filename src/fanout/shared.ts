import type { EditEvent } from "../contracts/events.js";
import { bylineText } from "../contracts/timelines.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { SECOND, sharedNow } from "../kernel/time.js";
import { type SharedAddition, writeUnlessDeleted } from "../state/index.js";
import type { AdmittedChange } from "./change.js";
import type { FanoutDeps } from "./deps.js";
import type { SharedNotice, Trace } from "./publish.nats.js";

type TellDeps = Pick<FanoutDeps, "writer" | "publishing" | "notifyShared">;

/** A younger drop is below the floor of local only if as many newer drops have come as local holds. */
const YOUNG_MS = 10 * SECOND;

/** A drop to write. */
export interface Addition extends SharedAddition {
  /** True: the drop is news. */
  readonly isTold: boolean;
  readonly trace: Trace;
}

/** Writes drops to local and global, and tells of those that are news. */
export async function writeShared(deps: FanoutDeps, all: readonly Addition[]): Promise<void> {
  const { fences, writer } = deps;
  const start = fences.retentionStart();
  const kept = all.filter(({ entry }) => entry.score >= start);
  if (kept.length === 0) return;
  const deleted = await writeUnlessDeleted(
    kept.map(({ entry }) => entry.drop),
    {
      write: () => writer.addShared(kept),
      tombstonedAmong: fences.tombstonedAmong,
      remove: (dead) => writer.removeShared(dead),
    },
  );
  await tellAdditions(
    deps,
    kept.filter(({ entry, isTold }) => isTold && !deleted?.has(entry.drop)),
  );
}

/**
 * Tells of new drops, which were written and then found without a tombstone. A drop whose deletion is told at the same
 * moment may be told after it: gateways leave it out then.
 */
async function tellAdditions({ writer, notifyShared }: TellDeps, all: readonly Addition[]): Promise<void> {
  if (all.length === 0) return;
  const youngSince = sharedNow() - YOUNG_MS;
  const older = all.filter(({ entry }) => entry.score < youngSince).map(({ entry }) => entry.drop);
  const holding = older.length === 0 ? undefined : await writer.sharedHolding(older);
  const notices = all.flatMap(({ entry: { drop, score, by }, timelines, trace }): SharedNotice[] => {
    const shown = timelines.includes("local") ? "local" : "global";
    if (score < youngSince && !holding?.has(drop)) return [];
    const text = by && bylineText(by);
    return [
      { notification: { event: "new_drop", drop_id: drop, created_at: score, shown_in: shown, by: text }, trace },
    ];
  });
  await notifyShared(notices);
}

/** Tells of deletions before the drops are removed, so that a repetition tells the same. */
export async function tellDeletions(
  { writer, notifyShared }: TellDeps,
  drops: readonly AdmittedChange[],
  authors: ReadonlyMap<string, string | undefined>,
): Promise<void> {
  const told = drops.filter(isRecent);
  if (told.length === 0) return;
  const holding = await writer.sharedHolding(told.map(({ event }) => event.payload.drop_id));
  await notifyShared(
    told.map(({ event: { payload }, trace }): SharedNotice => {
      const { drop_id } = payload;
      const author = authors.get(drop_id);
      const by = author === undefined ? undefined : bylineText({ author });
      return { notification: { event: "drop_deleted", drop_id, shown_in: holding.get(drop_id), by }, trace };
    }),
  );
}

/**
 * Tells of edits. Of a drop that is still being published `shown_in` is left out: its `new_drop` may come later, and gateways
 * send only edits of drops that they have sent.
 */
export async function tellSharedEdits(
  { writer, publishing, notifyShared }: TellDeps,
  edits: readonly { readonly event: EditEvent; readonly trace?: Trace }[],
): Promise<void> {
  if (edits.length === 0) return;
  const holding = new Map(await writer.sharedHolding([...new Set(edits.map(({ event }) => event.payload.drop_id))]));
  if (holding.size > 0) for (const drop of await publishing.among([...holding.keys()])) holding.delete(drop);
  await notifyShared(
    edits.map(({ event: { payload }, trace }): SharedNotice => {
      const { drop_id, revision, user_id: author } = payload;
      const by = bylineText({ author });
      return { notification: { event: "drop_edited", drop_id, revision, shown_in: holding.get(drop_id), by }, trace };
    }),
  );
}

const isRecent = ({ silent, admitted_at }: AdmittedChange): boolean =>
  !silent && sharedNow() - admitted_at <= NOTIFY_WINDOW_MS;
