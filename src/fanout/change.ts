import type { DropEvent, EditEvent } from "../contracts/events.js";
import type { FanoutJob } from "../contracts/fanout.js";
import type { Byline } from "../contracts/timelines.js";
import { isNews, NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { sharedNow } from "../kernel/time.js";
import type { Audience, SignedEntry } from "../state/index.js";
import type { Trace } from "./publish.nats.js";

/** A publication or deletion, in the form that every chunk job has. */
export type Change = Omit<FanoutJob, "user_ids">;

export interface AudienceChange {
  readonly change: Change;
  readonly audience: Audience;
  readonly trace?: Trace;
}

/** Returns true for a publication of which listeners are notified. */
export const isAnnounced = ({
  action,
  silent,
  admitted_at,
  created_at,
}: Pick<Change, "action" | "silent" | "admitted_at" | "created_at">): boolean =>
  action === "add" && !silent && isNews(created_at, admitted_at);

/** A deletion is dated at its admission. */
export const mayNotify = ({
  silent,
  admitted_at,
  created_at,
}: Pick<Change, "silent" | "admitted_at" | "created_at">): boolean =>
  !silent && sharedNow() - admitted_at <= NOTIFY_WINDOW_MS && isNews(created_at, admitted_at);
export const notifies = ({ change, audience }: AudienceChange): boolean =>
  audience.ids.length + audience.readers.length > 0 && mayNotify(change);
export const isDeletion = ({ change }: AudienceChange): boolean => change.action === "remove";
export const bylineOfChange = ({ user_id: author, repost_of, repost_author = "", reply_to_author }: Change): Byline =>
  repost_of === undefined ? { author, parent: reply_to_author } : { author, original: repost_author };
export const entryOf = (change: Change): SignedEntry => {
  const by: Byline = { ...bylineOfChange(change), repostOf: change.repost_of };
  if (change.for_followers)
    return { drop: change.drop_id, score: change.created_at, by: { ...by, forFollowers: true } };
  return { drop: change.drop_id, score: change.created_at, by };
};

/** A change of timelines, as the log admitted it. */
export interface AdmittedChange {
  readonly event: Exclude<DropEvent, EditEvent>;
  /** Time of the admission, in ms since the epoch. */
  readonly admitted_at: number;
  /** True: nobody is notified. */
  readonly silent: true | undefined;
  readonly trace?: Trace;
  /** Erased author of a deletion. */
  readonly erasedAuthor?: string;
}
