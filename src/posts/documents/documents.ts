import { isTime } from "../../contracts/times.js";
import { type Attachment, Visibility } from "../../gen/avion/posts.js";
import { PUBLIC_COLLECTION } from "../drops/addressing.js";
import type { StoredDrop } from "../drops/drops.sql.js";
import { createdAtOf } from "../drops/ids.js";
import type { LocalUser } from "../drops/local-users.js";
import { isUri } from "../drops/request.js";
import type { OwnUris } from "../drops/uris.js";
import type { ListedReaction } from "../reactions/lists.sql.js";

/** An object of ActivityStreams without its context. Properties that are undefined are not in the JSON. */
export type Document = Readonly<Record<string, unknown>>;

const CONTEXT = "https://www.w3.org/ns/activitystreams";

/** Servers know these properties, but the context does not. */
const EXTENSIONS = ["sensitive", "manuallyApprovesFollowers"] as const;

export function toJson(document: Document): string {
  const terms = EXTENSIONS.filter((term) => document[term] !== undefined).map((term) => [term, `as:${term}`]);
  const context = terms.length === 0 ? CONTEXT : [CONTEXT, Object.fromEntries(terms)];
  return JSON.stringify({ "@context": context, ...document });
}

/** The id of a remote actor is its URI. */
export const uriOfUser = (uris: OwnUris, id: string): string => (isUri(id) ? id : uris.ofUser(id));

/** The id of a remote drop is its URI. */
export const uriOfDrop = (uris: OwnUris, id: string): string => (isUri(id) ? id : uris.ofDrop(id));

const followersUri = (uris: OwnUris, userId: string): string => `${uris.ofUser(userId)}/followers`;

/** The ActivityPub service serves the inbox and the outbox, and adds the public key. */
export function personOf(uris: OwnUris, { id, profile }: LocalUser): Document {
  const uri = uris.ofUser(id);
  return {
    id: uri,
    type: "Person",
    preferredUsername: id,
    name: profile?.display_name || undefined,
    summary: htmlOf(profile?.bio),
    icon: profile && isUri(profile.avatar_url) ? { type: "Image", url: profile.avatar_url } : undefined,
    published: timeOf(profile?.created_at),
    updated: timeOf(profile?.updated_at),
    inbox: `${uri}/inbox`,
    outbox: `${uri}/outbox`,
    followers: followersUri(uris, id),
    manuallyApprovesFollowers: profile?.approves_followers || undefined,
  };
}

export function noteOf(uris: OwnUris, drop: StoredDrop): Document {
  const id = uris.ofDrop(drop.drop_id);
  const named = namedIn(drop).map((person) => uriOfUser(uris, person));
  const { to, cc = [] } = audienceOf(uris, drop);
  const tag = named.map((href) => ({ type: "Mention", href }));
  const content = htmlOf(drop.body) ?? "";
  const attachment = drop.attachments.map(attachmentOf);
  // The recipients of a direct drop are in `to`.
  const everybody = [...cc, ...(drop.visibility === Visibility.DIRECT ? [] : named)];
  return {
    id,
    type: "Note",
    attributedTo: uris.ofUser(drop.user_id),
    summary: htmlOf(drop.summary),
    content,
    contentMap: drop.language === "" ? undefined : { [drop.language]: content },
    published: timeOf(createdAtOf(drop.drop_id)),
    updated: drop.revision > 1 ? timeOf(drop.updated_at) : undefined,
    inReplyTo: drop.reply_to === "" ? undefined : uriOfDrop(uris, drop.reply_to),
    to,
    cc: everybody.length > 0 ? everybody : undefined,
    tag: tag.length > 0 ? tag : undefined,
    attachment: attachment.length > 0 ? attachment : undefined,
    sensitive: drop.sensitive || undefined,
    replies: `${id}/replies`,
    likes: `${id}/likes`,
    shares: `${id}/shares`,
  };
}

/** Whom the note of a drop mentions. That of a direct drop names nobody but its recipients, who see it. */
function namedIn({ user_id, visibility, recipients, mentions, reply_to_author }: StoredDrop): readonly string[] {
  if (visibility === Visibility.DIRECT) return recipients;
  const others = reply_to_author === "" || reply_to_author === user_id ? [] : [reply_to_author];
  return [...new Set([...others, ...mentions])];
}

const attachmentOf = ({ url, media_type, description, width, height }: Attachment): Document => ({
  type: "Document",
  mediaType: media_type || undefined,
  url,
  name: description || undefined,
  width: width || undefined,
  height: height || undefined,
});

export function announceOf(uris: OwnUris, repost: StoredDrop): Document {
  const { to, cc = [] } = audienceOf(uris, repost);
  const author = repost.repost_author === "" ? [] : [uriOfUser(uris, repost.repost_author)];
  return {
    id: uris.ofDrop(repost.drop_id),
    type: "Announce",
    actor: uris.ofUser(repost.user_id),
    object: uriOfDrop(uris, repost.repost_of),
    published: timeOf(createdAtOf(repost.drop_id)),
    to,
    cc: [...cc, ...author],
  };
}

export const tombstoneOf = (id: string, formerType: string, deletedAt?: number): Document => ({
  id,
  type: "Tombstone",
  formerType,
  deleted: timeOf(deletedAt),
});

/** The repost of a remote actor has its URI on the actor's server. */
export function reactionOf(
  uris: OwnUris,
  type: "Like" | "Announce",
  object: string,
  reaction: Omit<ListedReaction, "visibility">,
): Document {
  const { user_id, at: reactedAt, repost_id } = reaction;
  const id = repost_id === null || isUri(user_id) ? undefined : uris.ofDrop(repost_id);
  return { id, type, actor: uriOfUser(uris, user_id), object, published: timeOf(reactedAt) };
}

/** The number of items is omitted if it is not known. */
export const collectionOf = (id: string, totalItems: number | undefined): Document => ({
  id,
  type: "OrderedCollection",
  totalItems,
  first: pageUri(id, ""),
});

export interface Page {
  readonly items: readonly (string | Document)[];
  readonly next_page_token: string;
}

export const pageOf = (partOf: string, token: string, { items, next_page_token: next }: Page): Document => ({
  id: pageUri(partOf, token),
  type: "OrderedCollectionPage",
  partOf,
  next: next === "" ? undefined : pageUri(partOf, next),
  orderedItems: items,
});

const pageUri = (collection: string, token: string): string => `${collection}?page_token=${token}`;

interface Addressed extends Pick<StoredDrop, "user_id" | "visibility" | "recipients"> {}

function audienceOf(uris: OwnUris, drop: Addressed): { readonly to: string[]; readonly cc?: string[] } {
  const followers = followersUri(uris, drop.user_id);
  if (drop.visibility === Visibility.PUBLIC) return { to: [PUBLIC_COLLECTION], cc: [followers] };
  if (drop.visibility === Visibility.UNLISTED) return { to: [followers], cc: [PUBLIC_COLLECTION] };
  if (drop.visibility === Visibility.FOLLOWERS) return { to: [followers] };
  return { to: drop.recipients.map((recipient) => uriOfUser(uris, recipient)) };
}

/** ISO 8601 has four digits for a year. */
const END_OF_TIME = Date.UTC(10_000, 0);

/** A time that a users service does not know is 0. */
const timeOf = (ms = 0): string | undefined =>
  isTime(ms) && ms > 0 && ms < END_OF_TIME ? new Date(ms).toISOString() : undefined;

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Texts here are plain, those of ActivityStreams are HTML. */
export function htmlOf(text = ""): string | undefined {
  if (text === "") return undefined;
  const escaped = text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character] as string);
  const paragraphs = escaped.replaceAll(/\r\n?/g, "\n").split(/\n{2,}/);
  return paragraphs.map((paragraph) => `<p>${paragraph.replaceAll("\n", "<br>")}</p>`).join("");
}
