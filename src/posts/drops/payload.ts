import { z } from "zod";
import { MAX_MENTIONS, understood } from "../../contracts/untrusted.js";
import type { DropDetails } from "../../gen/avion/posts.js";
import { invalid } from "../../kernel/errors.js";
import { readId, storedIdFault, textFault } from "../../kernel/fields.js";
import { normalUri } from "../../kernel/urls.js";
import { isObject, valuesOf } from "./addressing.js";
import { isUri } from "./request.js";
import { localUserOr, type OwnUrl } from "./uris.js";

/** Fields of a drop besides its texts and its audience. */
export type Payload = Pick<DropDetails, "attachments" | "language" | "sensitive" | "extra">;

export const NO_PAYLOAD: Payload = { attachments: [], language: "", sensitive: false, extra: undefined };

const MAX_ATTACHMENTS = 16;
const MAX_URL_BYTES = 2_048;
const MAX_DESCRIPTION_CHARACTERS = 1_500;
const MAX_TYPE_CHARACTERS = 200;
const MAX_LANGUAGE_CHARACTERS = 64;
const MAX_EXTRA_BYTES = 16 * 1_024;
/** Clients of several languages read at most 100 nested messages, and a level takes three. */
const MAX_EXTRA_DEPTH = 25;
const MAX_PIXELS = 2 ** 31 - 1;

const checked = <Value>(type: z.ZodType<Value>, faultOf: (value: Value) => string | undefined) =>
  type.superRefine((value, context) => {
    const message = faultOf(value);
    if (message !== undefined) context.addIssue({ code: "custom", message });
  });

const isHttps = (url: string): boolean => /^https:/i.test(url) && isUri(url) && Buffer.byteLength(url) <= MAX_URL_BYTES;

const MEDIA_TYPE = /^([\w!#$&^.+-]+\/[\w!#$&^.+-]+( *;.*)?)?$/;

const mediaTypeFault = (type: string): string | undefined =>
  MEDIA_TYPE.test(type) ? textFault(type, MAX_TYPE_CHARACTERS) : "is no media type";

const attachment = z.object({
  url: checked(z.string(), (url) => (isHttps(url) ? undefined : `is no https URL of at most ${MAX_URL_BYTES} bytes`)),
  media_type: checked(z.string(), mediaTypeFault),
  description: checked(z.string(), (text) => textFault(text, MAX_DESCRIPTION_CHARACTERS)),
  width: z.int().min(0).max(MAX_PIXELS),
  height: z.int().min(0).max(MAX_PIXELS),
});

const PRIVATE_TAG = /^[ix](-[a-z\d]{1,8})+$/i;

function languageFault(tag: string): string | undefined {
  if (tag === "" || (PRIVATE_TAG.test(tag) && tag.length <= MAX_LANGUAGE_CHARACTERS)) return undefined;
  try {
    if (tag.length <= MAX_LANGUAGE_CHARACTERS && Intl.getCanonicalLocales(tag).length > 0) return undefined;
  } catch {
    // It is malformed.
  }
  return "is no language tag of BCP 47";
}

function extraFault(extra: Payload["extra"]): string | undefined {
  if (extra === undefined) return undefined;
  const fault = jsonFault(extra, 1);
  if (fault !== undefined) return fault;
  return Buffer.byteLength(JSON.stringify(extra)) > MAX_EXTRA_BYTES
    ? `must have at most ${MAX_EXTRA_BYTES} bytes as JSON`
    : undefined;
}

/** A protobuf value may be unset, NaN or infinite, which JSON cannot express. */
function jsonFault(value: unknown, depth: number): string | undefined {
  if (value === undefined || (typeof value === "number" && !Number.isFinite(value)))
    return "has a value that is no JSON";
  if (typeof value === "string") return value.includes("\0") ? "must not contain NUL" : undefined;
  if (typeof value !== "object" || value === null) return undefined;
  if (depth > MAX_EXTRA_DEPTH) return `must have at most ${MAX_EXTRA_DEPTH} levels`;
  for (const [name, inner] of Object.entries(value)) {
    const fault = jsonFault(name, depth) ?? jsonFault(inner, depth + 1);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

const language = checked(z.string(), languageFault);

const schema = z.object({
  attachments: z.array(attachment).max(MAX_ATTACHMENTS, `must have at most ${MAX_ATTACHMENTS} entries`),
  language,
  sensitive: z.boolean(),
  extra: checked(z.custom<Payload["extra"]>(), extraFault).optional(),
});

/** @throws AppError `invalid`, naming the field */
export const readPayload = (request: Payload): Payload => ({ extra: undefined, ...understood(schema, request) });

/** @throws AppError `invalid` */
export function readMentions(mentions: readonly string[]): string[] {
  if (mentions.length > MAX_MENTIONS) throw invalid("mentions", `must have at most ${MAX_MENTIONS} entries`);
  return [...new Set(mentions.map((mention) => readId("mentions", mention)))];
}

/** Returns the value of the column `payload`: null if there is nothing, and no field that is empty. */
export function storedPayload(payload: Partial<Payload>): object | null {
  const { attachments = [], language = "", sensitive = false, extra } = payload;
  const fields = {
    ...(attachments.length > 0 && { attachments }),
    ...(language !== "" && { language }),
    ...(sensitive && { sensitive }),
    ...(extra !== undefined && { extra }),
  };
  return Object.keys(fields).length === 0 ? null : fields;
}

const MENTION = /^(as:|https?:\/\/www\.w3\.org\/ns\/activitystreams#)?Mention$/;

const asText = (value: unknown): string => (typeof value === "string" ? value : "");

/** Reads the mentions and the payload of a remote drop. What cannot be read is omitted, and spoils nothing else. */
export function readDocumentPayload(document: unknown, config?: OwnUrl): Payload & { readonly mentions: string[] } {
  const tags = valuesOf(document, "tag").filter(isObject);
  const hrefs = tags.filter((tag) => valuesOf(tag, "type").some((type) => MENTION.test(asText(type)))).map(hrefOf);
  const people = hrefs.filter((href) => href !== "").map((href) => localUserOr(normalUri(href), config));
  const attachments = valuesOf(document, "attachment").filter(isObject).flatMap(readAttachment);
  const languages = isObject(document) && isObject(document["contentMap"]) ? Object.keys(document["contentMap"]) : [];
  const [tag = ""] = languages.length === 1 ? languages : [];
  return {
    mentions: [...new Set(people.filter((id) => storedIdFault(id) === undefined))].slice(0, MAX_MENTIONS),
    attachments: attachments.slice(0, MAX_ATTACHMENTS),
    language: languageFault(tag) === undefined ? tag : "",
    sensitive: isObject(document) && document["sensitive"] === true,
    extra: undefined,
  };
}

/** A URL is a text, or a Link with an `href`. */
const hrefOf = (object: Record<string, unknown>): string => asText(valuesOf(object, "href")[0]);

function readAttachment(object: Record<string, unknown>): Payload["attachments"] {
  const [link] = valuesOf(object, "url");
  const [file, media] = isObject(link) ? [hrefOf(link), link["mediaType"]] : [asText(link), undefined];
  const size = (field: string): unknown => object[field] ?? (isObject(link) ? link[field] : undefined) ?? 0;
  const read = attachment.safeParse({
    url: file || hrefOf(object),
    media_type: mediaTypeOf(object["mediaType"] ?? media),
    description: Array.from(asText(object["name"])).slice(0, MAX_DESCRIPTION_CHARACTERS).join("").replaceAll("\0", ""),
    width: pixelsOf(size("width")),
    height: pixelsOf(size("height")),
  });
  return read.success ? [read.data] : [];
}

const mediaTypeOf = (type: unknown): string => (mediaTypeFault(asText(type)) === undefined ? asText(type) : "");

const pixelsOf = (size: unknown): number =>
  Number.isSafeInteger(size) && (size as number) > 0 && (size as number) <= MAX_PIXELS ? (size as number) : 0;
