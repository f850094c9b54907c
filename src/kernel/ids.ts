import { createHash } from "node:crypto";

export const MAX_ID_BYTES = 128;

/** No drop has this id: timelines keep their floor under it. */
export const RESERVED_DROP_ID = "~floor";

const PLAIN = /^[A-Za-z0-9_-]{1,64}$/;

// No plain id starts with `=`, so no two ids share a token.
export function encodeId(id: string): string {
  return PLAIN.test(id) ? id : `=${Buffer.from(id, "utf8").toString("base64url")}`;
}

export function decodeId(token: string): string {
  return token.startsWith("=") ? Buffer.from(token.slice(1), "base64url").toString("utf8") : token;
}

/** Redis orders members with the same score by their bytes. UTF-16 order (`<`) differs above the surrogates. */
export function compareBytes(a: string, b: string): number {
  if (a === b) return 0;
  return isAscii(a) && isAscii(b) ? (a < b ? -1 : 1) : Buffer.compare(Buffer.from(a), Buffer.from(b));
}

function isAscii(text: string): boolean {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 0x7f) return false;
  return true;
}

export function idFault(id: string): string | undefined {
  if (id.length === 0) return "must not be empty";
  if (!id.isWellFormed()) return "is not well-formed Unicode";
  // A character takes at most three bytes.
  if (3 * id.length > MAX_ID_BYTES && Buffer.byteLength(id) > MAX_ID_BYTES)
    return `must have at most ${MAX_ID_BYTES} bytes`;
  return undefined;
}

/** Returns FNV-1a of the text: below 2^32, and the same on every machine. */
export function spread(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return hash >>> 0;
}

/** The fingerprint is 128 bits of SHA-256 in base64url. */
export function fingerprint(text: string | Uint8Array): string {
  return createHash("sha256").update(text).digest().subarray(0, 16).toString("base64url");
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** The text must be in lower case, the form in which ids are compared. */
export const isUuid = (text: string): boolean => UUID.test(text);

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i;
const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/i;
const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/**
 * Reads the time of a UUIDv7 (RFC 9562, 48 leading bits) or ULID (10 leading Crockford digits), in ms since the epoch.
 */
export function dateOfId(id: string): number | undefined {
  if (UUID_V7.test(id)) return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
  if (!ULID.test(id)) return undefined;
  let ms = 0;
  for (const digit of id.slice(0, 10).toUpperCase()) ms = ms * 32 + CROCKFORD.indexOf(digit);
  return ms;
}
