import { storedIdFault } from "../kernel/fields.js";
import { isUuid } from "../kernel/ids.js";
import { isAddress, nameAmong } from "./addressing.js";
import { isUri } from "./request.js";
import { isSameUri, type OwnUrl, urisOf } from "./uris.js";

/** Returns the id of a drop of this server for its URI. Everything else stays as it is. */
export const localOr = (id: string, config: OwnUrl = {}): string => urisOf(config)?.dropOf(id) ?? id;

/** Returns the drop id or URI, as it is written, that a document says it replies to. What cannot be read, or stored, is no reply. */
export function readReplyTo(document: string, uri: string, config?: OwnUrl): string | undefined {
  const named = nameAmong(JSON.parse(document || "null"), "inReplyTo");
  if (!isAddress(named) || isSameUri(named, uri) || storedIdFault(named) !== undefined) return undefined;
  const id = localOr(named, config);
  const lower = id.toLowerCase();
  if (isUuid(lower)) return lower;
  return isUri(id) ? id : undefined;
}
