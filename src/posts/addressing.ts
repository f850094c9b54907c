import { MAX_RECIPIENTS } from "../contracts/untrusted.js";
import { Visibility } from "../gen/avion/posts.js";
import { invalid } from "../kernel/errors.js";
import { storedIdFault } from "../kernel/fields.js";

export interface Addressing {
  readonly visibility: Visibility;
  readonly recipients: string[];
}

const PUBLIC = new Set(["https://www.w3.org/ns/activitystreams#Public", "as:Public", "Public"]);

/** Only the first two can make an object public. */
const FIELDS = ["to", "cc", "bto", "bcc", "audience"] as const;

/**
 * Reads the audience of an ActivityStreams object. What is no address is ignored, as other servers do.
 *
 * @throws AppError `invalid` naming the field of the document, if it addresses somebody and nothing of it can be read
 */
export function readAddressing(document: unknown, followers: string | undefined): Addressing {
  const read = FIELDS.map((field) => addressesOf(document, field));
  const [to = [], cc = [], ...others] = read;
  if (read.every(({ length }) => length === 0)) refuseUnreadable(document);
  if (to.some((id) => PUBLIC.has(id))) return { visibility: Visibility.PUBLIC, recipients: [] };
  if (cc.some((id) => PUBLIC.has(id))) return { visibility: Visibility.UNLISTED, recipients: [] };
  const everybody = [...to, ...cc, ...others.flat()];
  if (followers !== undefined && everybody.includes(followers))
    return { visibility: Visibility.FOLLOWERS, recipients: [] };
  const recipients = new Set(everybody.filter((id) => !PUBLIC.has(id) && isId(id)));
  if (recipients.size > MAX_RECIPIENTS) throw invalid("document.to", `and cc address more than ${MAX_RECIPIENTS}`);
  return { visibility: Visibility.DIRECT, recipients: [...recipients] };
}

/** A list, and lists in it. */
const NESTED_LISTS = 2;

/** Addresses that are no users of this server may be longer than its ids. */
const isId = (id: string): boolean => storedIdFault(id) === undefined;

function addressesOf(document: unknown, field: string): string[] {
  const value: unknown = isObject(document) ? document[field] : undefined;
  return [value].flat(NESTED_LISTS).flatMap((one) => addressOf(one) ?? []);
}

function addressOf(value: unknown): string | undefined {
  const id = isObject(value) ? (value["id"] ?? value["@id"]) : value;
  return typeof id === "string" && id !== "" ? id : undefined;
}

function refuseUnreadable(document: unknown): void {
  const values = isObject(document) ? document : {};
  const unreadable = FIELDS.find((field) => !isNobody(values[field]));
  if (unreadable) throw invalid(`document.${unreadable}`, "has no URI, and no object with an id");
}

const isNobody = (value: unknown): boolean =>
  value === undefined || value === null || (Array.isArray(value) && value.length === 0);

/** The URI of an actor's followers: from the actor's document, or as most servers form it. */
export function followersOf(actorUri: string, document: string | undefined): string | undefined {
  if (actorUri === "") return undefined;
  const actor: unknown = document ? JSON.parse(document) : undefined;
  const named = isObject(actor) ? addressOf(actor["followers"]) : undefined;
  return named ?? `${actorUri.replace(/\/+$/, "")}/followers`;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
