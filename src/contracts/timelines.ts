import { type Drop, Visibility } from "../gen/avion/posts.js";
import { compareBytes, decodeId, encodeId } from "../kernel/ids.js";
import { textBytes } from "./caches.js";

/** Events use these names of visibilities. */
export const VISIBILITY_NAMES = {
  [Visibility.PUBLIC]: "public",
  [Visibility.UNLISTED]: "unlisted",
  [Visibility.FOLLOWERS]: "followers",
  [Visibility.DIRECT]: "direct",
} as const;

export type KnownVisibility = keyof typeof VISIBILITY_NAMES;

/** The users who made a drop. */
export interface Byline {
  readonly author: string;
  /** Of a repost: the original's author; "" if that one is not known. */
  readonly original?: string | undefined;
  /** Of a repost: the original. */
  readonly repostOf?: string | undefined;
  /** Of a reply to somebody else: the parent's author. */
  readonly parent?: string | undefined;
  /** In a list: only who follows the author may see the drop; "unknown" in the timeline of a pulled author. */
  readonly forFollowers?: true | "unknown" | undefined;
}

/** Fields of a drop or of its event that name others. */
interface Naming {
  readonly user_id?: string | undefined;
  readonly repost_of?: string | undefined;
  readonly reply_to_author?: string | undefined;
}

/** Returns the parent's author of a reply to somebody else. A repost of a reply and a direct drop count as no replies. */
export const parentOf = (
  { user_id, repost_of, reply_to_author: parent }: Naming,
  isDirect: boolean,
): string | undefined => (isDirect || repost_of || !parent || parent === user_id ? undefined : parent);

export interface TimelineEntry {
  readonly score: number;
  readonly drop: string;
  /** Set if it is known and the caller asks for it. */
  readonly by?: Byline | undefined;
  /** The drop is from another server; it is set in global only. */
  readonly remote?: true;
}

/** Returns true if a drop is for more than those who follow its author. */
export const isOpen = ({ visibility }: Drop): boolean =>
  visibility === Visibility.PUBLIC || visibility === Visibility.UNLISTED;

/** The entry of a drop that an upstream lists. */
export function entryOfDrop(listed: Drop): TimelineEntry & { readonly by: Byline } {
  const { drop_id: drop, created_at: score, user_id: author, repost_of, repost_author } = listed;
  const parent = parentOf(listed, listed.visibility === Visibility.DIRECT);
  const by = repost_of === "" ? { author, parent } : { author, original: repost_author, repostOf: repost_of };
  return { score, drop, by: isOpen(listed) ? by : { ...by, forFollowers: true } };
}

/**
 * The text of a byline has the tokens of the author, the original's author, the parent's author, and the original, joined
 * by ",", which they never hold. Empty parts at the end are left out, except the original's author.
 */
export function bylineText({ author, original, parent, repostOf }: Byline): string {
  if (parent !== undefined) return `${encodeId(author)},,${encodeId(parent)}`;
  if (original === undefined) return encodeId(author);
  const signed = `${encodeId(author)},${encodeId(original)}`;
  return repostOf === undefined ? signed : `${signed},,${encodeId(repostOf)}`;
}

const FOR_FOLLOWERS = "f";

/** The text of a byline in a list has a fifth part if the drop is for followers, and then all parts. */
export function listedBylineText(by: Byline): string {
  const text = bylineText(by);
  if (by.forFollowers !== true) return text;
  return [...Array.from({ length: 4 }, (_, part) => text.split(",")[part] ?? ""), FOR_FOLLOWERS].join(",");
}

export function bylineOf(text: string): Byline {
  const [author = "", original, parent, repostOf, audience] = text.split(",").map(decodeId);
  if (audience !== undefined) {
    const by = parent ? { parent } : repostOf ? { original, repostOf } : {};
    return { author, ...by, forFollowers: true };
  }
  if (parent) return { author, parent };
  return { author, original, ...(repostOf !== undefined && { repostOf }) };
}

/** Upper bound of the memory of a byline, bytes. */
export const bylineBytes = ({ author, original = "", parent = "", repostOf = "" }: Byline): number =>
  80 + textBytes(author) + textBytes(original) + textBytes(parent) + textBytes(repostOf);

export const compareEntries = (a: TimelineEntry, b: TimelineEntry): number =>
  a.score - b.score || compareBytes(a.drop, b.drop);

/** A page of an author's drops below a position, newest first, each drop once. */
export interface DropPage {
  readonly drops: readonly Drop[];
  /** The next page begins below it, which need not be a drop; undefined: the author has no older drop. */
  readonly next: TimelineEntry | undefined;
}

export const NO_DROPS: DropPage = { drops: [], next: undefined };

/** Maximum number of users whose drops are merged into a home. */
export const MAX_FOLLOWING = 100_000;

export function belongsHome(drop: Drop, reader: string): boolean {
  if (drop.deleted) return false;
  switch (drop.visibility) {
    case Visibility.PUBLIC:
    case Visibility.UNLISTED:
    case Visibility.FOLLOWERS:
      return true;
    case Visibility.DIRECT:
      return drop.user_id === reader || drop.recipients.includes(reader);
    default:
      // A visibility that a newer upstream knows and we do not is shown to the author only.
      return drop.user_id === reader;
  }
}

/** Homes may lack what a recovery could not apply: those of the author and their followers, or the reader's own. */
export interface Affected {
  readonly kind: "author" | "reader";
  readonly user: string;
}

/** The drop is of the log, or of local, which names no author. */
export interface HeldDrop {
  readonly drop: string;
  readonly author?: string | undefined;
  /** The time is in ms since the epoch. */
  readonly createdAt: number;
}
