import { MAX_RECIPIENTS } from "../contracts/untrusted.js";
import { Visibility } from "../gen/avion/posts.js";
import { invalid } from "../kernel/errors.js";
import { storedIdFault } from "../kernel/fields.js";

export interface Addressing {
  readonly visibility: Visibility;
  readonly recipients: string[];
}

const PUBLIC = new Set(["https://www.w3.org/ns/activitystreams#Public", "as:Public", "Public"]);

/** Only `to` and `cc` can make an object public. */
const FIELDS = ["to", "cc", "bto", "bcc", "audience"] as const;

/**
 * Reads the audience of an ActivityStreams object. An address that cannot be read is ignored: this never adds anybody.
 * @throws AppError `invalid` naming the field of the document, where no address can be read, or too many are
 */
export function readAddressing(document: unknown, followers: string | undefined): Addressing {
  const values = FIELDS.map((field) => valuesOf(document, field));
  const [to = [], cc = [], ...others] = values.map(addressesAmong);
  const named = FIELDS.find((_, index) => (values[index] as unknown[]).length > 0);
  if (named !== undefined && to.length + cc.length + others.flat().length === 0)
    throw invalid(`document.${named}`, "must be a URI, an object with an id, or a list of these");
  if (to.some((id) => PUBLIC.has(id))) return { visibility: Visibility.PUBLIC, recipients: [] };
  if (cc.some((id) => PUBLIC.has(id))) return { visibility: Visibility.UNLISTED, recipients: [] };
  const everybody = [...to, ...cc, ...others.flat()];
  if (followers !== undefined && everybody.includes(followers))
    return { visibility: Visibility.FOLLOWERS, recipients: [] };
  const recipients = new Set(everybody.filter((id) => !PUBLIC.has(id) && isId(id)));
  if (recipients.size > MAX_RECIPIENTS) throw invalid("document.to", `and cc address more than ${MAX_RECIPIENTS}`);
  return { visibility: Visibility.DIRECT, recipients: [...recipients] };
}

/** Addresses that are no users of this server may be longer than its ids. */
const isId = (id: string): boolean => storedIdFault(id) === undefined;

function valuesOf(document: unknown, field: string): unknown[] {
  const value: unknown = isObject(document) ? document[field] : undefined;
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

const addressesAmong = (values: readonly unknown[]): string[] =>
  values.map((one) => (isObject(one) ? [one["id"], one["@id"]].find(isAddress) : one)).filter(isAddress);

const isAddress = (id: unknown): id is string => typeof id === "string" && id !== "";

/** Returns the URI of an actor's followers: that in the actor's document, or the one that most servers form. */
export function followersOf(actorUri: string, document: string | undefined): string | undefined {
  if (actorUri === "") return undefined;
  const actor: unknown = document ? JSON.parse(document) : undefined;
  const named = addressesAmong(valuesOf(actor, "followers")).find((id) => !PUBLIC.has(id));
  return named ?? `${actorUri.replace(/\/+$/, "")}/followers`;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
