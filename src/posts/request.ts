import { Visibility } from "../gen/avion/posts.js";
import { invalid } from "../kernel/errors.js";
import { idFault } from "../kernel/ids.js";
import { isUuid } from "./drop-ids.js";

/** Reads an id of a user, or any other short name. @throws AppError `invalid` */
export function readId(field: string, id: string): string {
  const fault = idFault(id) ?? (id.includes("\0") ? "must not contain NUL" : undefined);
  if (fault !== undefined) throw invalid(field, fault);
  return id;
}

/** Reads an id of a drop of this server, into lower case. @throws AppError `invalid` */
export function readDropId(field: string, id: string): string {
  const lower = id.toLowerCase();
  if (!isUuid(lower)) throw invalid(field, "is not a UUID");
  return lower;
}

const WEB = /^https?:\/\/[^\s/?#]/i;

/** True for what may be the URI of a foreign object. */
export function isUri(text: string): boolean {
  return WEB.test(text) && URL.canParse(text) && !/[\p{Cc}\s]/u.test(text) && text.isWellFormed();
}

/** Reads the URI of a foreign object, of at most so many bytes. @throws AppError `invalid` */
export function readUri(field: string, uri: string, maxBytes: number): string {
  if (!isUri(uri)) throw invalid(field, "is not an http or https URI");
  if (Buffer.byteLength(uri) > maxBytes) throw invalid(field, `must have at most ${maxBytes} bytes`);
  return uri;
}

/** Reads the id of a drop of this server, or the URI of a foreign one. @throws AppError `invalid` */
export function readAnyDropId(field: string, id: string): string {
  return isUri(id) ? readId(field, id) : readDropId(field, id);
}

/** Reads a list of ids; a foreign drop's is allowed, since timelines contain them, and leads to nothing here. */
export function readDropIds(field: string, ids: readonly string[], most: number): string[] {
  if (ids.length > most) throw invalid(field, `must be at most ${most}`);
  return ids.map((id) => readAnyDropId(field, id));
}

/** Reads a visibility. @throws AppError `invalid` */
export function readVisibility(visibility: Visibility): Visibility {
  if (visibility >= Visibility.PUBLIC && visibility <= Visibility.DIRECT) return visibility;
  throw invalid("visibility", "must be public, unlisted, followers or direct");
}

/** Reads the recipients of a direct drop, each once. @throws AppError `invalid` */
export function readRecipients(recipients: readonly string[], most: number): string[] {
  if (recipients.length > most) throw invalid("recipients", `must be at most ${most}`);
  return [...new Set(recipients.map((recipient) => readId("recipients", recipient)))];
}

/** Reads who is to see something; undefined where nobody is named. @throws AppError `invalid` */
export function readViewer(viewerId: string): string | undefined {
  return viewerId === "" ? undefined : readId("viewer_id", viewerId);
}

/** Reads a text of at most so many Unicode code points. @throws AppError `invalid` */
export function readText(field: string, text: string, maxCharacters: number): string {
  if (exceeds(text, maxCharacters)) throw invalid(field, `must have at most ${maxCharacters} characters`);
  if (text.includes("\0")) throw invalid(field, "must not contain NUL");
  if (!text.isWellFormed()) throw invalid(field, "is not well-formed Unicode");
  return text;
}

function exceeds(text: string, maxCharacters: number): boolean {
  if (text.length <= maxCharacters) return false;
  let characters = 0;
  for (const _ of text) if (++characters > maxCharacters) return true;
  return false;
}

/** Reads summary and body, of which one may be empty. @throws AppError `invalid` */
export function readTexts(
  { summary, body }: { readonly summary: string; readonly body: string },
  limits: { readonly maxSummaryCharacters: number; readonly maxBodyCharacters: number },
): { summary: string; body: string } {
  readText("summary", summary, limits.maxSummaryCharacters);
  readText("body", body, limits.maxBodyCharacters);
  if (body === "" && summary === "") throw invalid("body", "must not be empty without a summary");
  return { summary, body };
}

/** Reads a whole number that is not negative. @throws AppError `invalid` */
export function readWhole(field: string, value: number): number {
  if (!Number.isSafeInteger(value) || value < 0) throw invalid(field, "must be a whole number, not negative");
  return value;
}
