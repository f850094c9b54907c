import { Visibility } from "../../gen/avion/posts.js";
import { invalid } from "../../kernel/errors.js";
import { readId, readText } from "../../kernel/fields.js";
import { isUuid } from "../../kernel/ids.js";
import { parseUrl } from "../../kernel/urls.js";

/** Characters are Unicode code points. */
export const MAX_SUMMARY_CHARACTERS = 500;

// Each reader throws an AppError `invalid` that names the field.

export function readDropId(field: string, id: string): string {
  const lower = id.toLowerCase();
  if (!isUuid(lower)) throw invalid(field, "is not a UUID");
  return lower;
}

const WEB = /^https?:\/\/[^\s/?#]/i;

export function isUri(text: string): boolean {
  return WEB.test(text) && parseUrl(text) !== undefined && !/[\p{Cc}\s]/u.test(text) && text.isWellFormed();
}

export function readUri(field: string, uri: string, maxBytes: number): string {
  if (!isUri(uri)) throw invalid(field, "is not an http or https URI");
  if (Buffer.byteLength(uri) > maxBytes) throw invalid(field, `must have at most ${maxBytes} bytes`);
  return uri;
}

export function readAnyDropId(field: string, id: string): string {
  return isUri(id) ? readId(field, id) : readDropId(field, id);
}

/** Remote ids are allowed, since timelines contain them; no row has them. */
export function readDropIds(field: string, ids: readonly string[], most: number): string[] {
  if (ids.length > most) throw invalid(field, `must have at most ${most} entries`);
  return ids.map((id) => readAnyDropId(field, id));
}

export function readVisibility(visibility: Visibility): Visibility {
  if (visibility >= Visibility.PUBLIC && visibility <= Visibility.DIRECT) return visibility;
  throw invalid("visibility", "must be public, unlisted, followers or direct");
}

export function readRecipients(recipients: readonly string[], most: number): string[] {
  if (recipients.length > most) throw invalid("recipients", `must have at most ${most} entries`);
  return [...new Set(recipients.map((recipient) => readId("recipients", recipient)))];
}

export function readViewer(viewerId: string): string | undefined {
  return viewerId === "" ? undefined : readId("viewer_id", viewerId);
}

interface Texts {
  readonly summary: string;
  readonly body: string;
  readonly attachments?: readonly unknown[];
}

export function readTexts(
  { summary, body, attachments = [] }: Texts,
  maxBodyCharacters: number,
): { summary: string; body: string } {
  readText("summary", summary, MAX_SUMMARY_CHARACTERS);
  readText("body", body, maxBodyCharacters);
  if (body === "" && summary === "" && attachments.length === 0)
    throw invalid("body", "must not be empty without a summary or an attachment");
  return { summary, body };
}

export function readWholeNumber(field: string, value: number): number {
  if (!Number.isSafeInteger(value) || value < 0) throw invalid(field, "must be a whole number, not negative");
  return value;
}
