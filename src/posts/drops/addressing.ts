import { MAX_RECIPIENTS } from "../../contracts/untrusted.js";
import { Visibility } from "../../gen/avion/posts.js";
import { invalid } from "../../kernel/errors.js";
import { storedIdFault } from "../../kernel/fields.js";
import { isUuid } from "../../kernel/ids.js";
import { normalUri, parseUrl } from "../../kernel/urls.js";
import { isUri } from "./request.js";
import { isSameUri, localDropOr, localUserOr, type OwnUrl } from "./uris.js";

export interface Addressing {
  readonly visibility: Visibility;
  readonly recipients: string[];
}

export const PUBLIC_COLLECTION = "https://www.w3.org/ns/activitystreams#Public";

const PUBLIC = new Set([PUBLIC_COLLECTION, "as:Public", "Public"]);

/** Only `to` and `cc` can make an object public. */
const FIELDS = ["to", "cc", "bto", "bcc", "audience"] as const;

/**
 * An address that cannot be read adds nobody; the URI of a local user adds that user.
 * @throws AppError `invalid` if too many can be read
 */
export function readAddressing(document: unknown, followers: string | undefined, config?: OwnUrl): Addressing {
  const [to = [], cc = [], ...others] = FIELDS.map((field) => addressesAmong(valuesOf(document, field)));
  if (to.some((id) => PUBLIC.has(id))) return { visibility: Visibility.PUBLIC, recipients: [] };
  if (cc.some((id) => PUBLIC.has(id))) return { visibility: Visibility.UNLISTED, recipients: [] };
  const everybody = [...to, ...cc, ...others.flat()];
  if (followers !== undefined && everybody.some((id) => isSameCollection(id, followers)))
    return { visibility: Visibility.FOLLOWERS, recipients: [] };
  const people = everybody.filter((id) => !PUBLIC.has(id)).map((id) => localUserOr(id, config));
  const recipients = new Set(people.filter(isId));
  if (recipients.size > MAX_RECIPIENTS) throw invalid("document.to", `and cc address more than ${MAX_RECIPIENTS}`);
  return { visibility: Visibility.DIRECT, recipients: [...recipients] };
}

const withoutSlash = (uri: string): string => uri.replace(/\/+$/, "");

const isSameCollection = (a: string, b: string): boolean => withoutSlash(a) === withoutSlash(b);

/** Addresses that are no users of this server may be longer than its ids. */
const isId = (id: string): boolean => storedIdFault(id) === undefined;

/** Returns the first URI or id that a field of a document names, as it is written there. */
const nameAmong = (document: unknown, field: string): string | undefined => namesAmong(valuesOf(document, field))[0];

/** Returns the first URI or id that a field of a document names, in normal form. */
export const uriAmong = (document: unknown, field: string): string | undefined =>
  addressesAmong(valuesOf(document, field))[0];

/** Returns the values of a field in their order: lists in lists are one list, as in JSON-LD. */
export function valuesOf(document: unknown, field: string): unknown[] {
  const values: unknown[] = [];
  const unread: unknown[] = [isObject(document) ? document[field] : undefined];
  while (unread.length > 0) {
    const value = unread.pop();
    const list = isObject(value) ? (value["@list"] ?? value["@set"]) : value;
    if (Array.isArray(list)) for (const item of list.toReversed()) unread.push(item);
    else if (isObject(value) && list !== undefined) unread.push(list);
    else if (value !== undefined && value !== null) values.push(value);
  }
  return values;
}

const isPublicIn = (document: unknown, field: string): boolean =>
  addressesAmong(valuesOf(document, field)).some((id) => PUBLIC.has(id));

const isAddressed = (document: Readonly<Record<string, unknown>>): boolean =>
  FIELDS.some((field) => document[field] !== undefined && document[field] !== null);

const opennessOf = (document: unknown): number => (isPublicIn(document, "to") ? 2 : isPublicIn(document, "cc") ? 1 : 0);

const addressesOf = (document: unknown): string[] =>
  FIELDS.flatMap((field) => addressesAmong(valuesOf(document, field)));

/** Returns an object with its own addresses or those of the activity around it, whichever reach fewer. */
export function narrowed(
  object: Readonly<Record<string, unknown>>,
  activity: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  if (!isAddressed(activity)) return object;
  const [inner, outer] = [opennessOf(object), opennessOf(activity)];
  if (isAddressed(object) && outer > inner) return object;
  const without = Object.fromEntries(FIELDS.map((field) => [field, undefined]));
  if (!isAddressed(object) || outer < inner)
    return { ...object, ...Object.fromEntries(FIELDS.map((field) => [field, activity[field]])) };
  const allowed = new Set(addressesOf(activity));
  const addresses = addressesOf(object);
  if (inner > 0 || addresses.every((id) => allowed.has(id))) return object;
  return { ...object, ...without, to: addresses.filter((id) => allowed.has(id)) };
}

const addressesAmong = (values: readonly unknown[]): string[] => namesAmong(values).map(normalUri);

const namesAmong = (values: readonly unknown[]): string[] =>
  values.map((value) => (isObject(value) ? idOf(value) : value)).filter(isAddress);

/** Of two ids the one that is not public counts: the stricter reading. */
function idOf(object: Record<string, unknown>): string | undefined {
  const ids = [object["id"], object["@id"]].filter(isAddress);
  return ids.find((id) => !PUBLIC.has(id)) ?? ids[0];
}

const isAddress = (id: unknown): id is string => typeof id === "string" && id !== "";

/**
 * Returns the addresses of which one may be the collection of the actor's followers, as long as the actor's document
 * is not known. That collection is on the actor's server, and no object mentions it.
 */
export function maybeFollowers(document: unknown, actorUri: string): string[] {
  const host = parseUrl(actorUri)?.host;
  const tags = valuesOf(document, "tag").map((tag) => (isObject(tag) ? tag["href"] : undefined));
  const people = new Set([actorUri, ...tags.filter(isAddress)].map(normalUri));
  const addresses = addressesOf(document);
  const isOnItsServer = (uri: string): boolean => isUri(uri) && parseUrl(uri)?.host === host;
  return [...new Set(addresses)].filter((uri) => !PUBLIC.has(uri) && !people.has(uri) && isOnItsServer(uri));
}

/** Returns the spellings of the collection that an actor's document names as its followers. */
export function namedFollowers(document: string): string[] {
  const names = namesAmong(valuesOf(JSON.parse(document), "followers")).slice(0, 1);
  const spellings = [...names, ...names.map(normalUri)].map(withoutSlash).flatMap((uri) => [uri, `${uri}/`]);
  return [...new Set(spellings)].filter((id) => !PUBLIC.has(id));
}

/** Returns the URI of an actor's followers: that in the actor's document, or the one that most servers form. */
export function followersOf(actorUri: string, document: string | undefined): string | undefined {
  if (actorUri === "") return undefined;
  const actor: unknown = document ? JSON.parse(document) : undefined;
  const named = addressesAmong(valuesOf(actor, "followers")).find((id) => !PUBLIC.has(id));
  return named ?? normalUri(`${withoutSlash(actorUri)}/followers`);
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Returns the drop id or URI, as it is written, that a document says it replies to. A name that cannot be read or
 * stored is no reply.
 */
export function readReplyTo(document: string, uri: string, config?: OwnUrl): string | undefined {
  const named = nameAmong(JSON.parse(document || "null"), "inReplyTo");
  if (!isAddress(named) || isSameUri(named, uri) || storedIdFault(named) !== undefined) return undefined;
  const id = localDropOr(named, config);
  const lower = id.toLowerCase();
  if (isUuid(lower)) return lower;
  return isUri(id) ? id : undefined;
}
