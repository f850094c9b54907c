import * as wire from "../../gen/avion/posts.js";
import { isObject, uriAmong, valuesOf } from "../drops/addressing.js";
import type { StoredRemoteObject } from "../drops/remote-drops.sql.js";
import { isOnHostOf, isSameUri } from "../drops/uris.js";
import { kindOf, timeOf } from "./received-documents.js";

const { RemoteKind } = wire;

type DocumentFault = "json" | "id" | "unfit";

/**
 * Turns a fetched document into the request with which an ActivityPub service would put it. A server may speak only for
 * its own actors. A document cannot prove the webfinger address of an actor, so the one that was put is kept.
 */
export function readFetched(
  { uri, document, maxAgeS }: { readonly uri: string; readonly document: string; readonly maxAgeS: number },
  stored: StoredRemoteObject | undefined,
): wire.PutRemoteObjectRequest | { readonly fault: DocumentFault } {
  const content = parse(document);
  if (content === undefined) return { fault: "json" };
  if (typeof content["id"] !== "string" || !isSameUri(content["id"], uri)) return { fault: "id" };
  const put = wire.PutRemoteObjectRequest.fromPartial({ uri, document, max_age: maxAgeS });
  const kind = kindOf(content);
  if (kind === RemoteKind.ACTOR) {
    const { webfinger = "", webfinger_type = "", webfinger_href = "" } = stored ?? {};
    const public_key = keyOf(content, uri);
    return { ...put, kind: RemoteKind.ACTOR, public_key, webfinger, webfinger_type, webfinger_href };
  }
  const actor_uri = uriAmong(content, "attributedTo");
  const created_at = timeOf(content["published"]);
  // A drop without a time would get the current one, however old it is.
  const isFit = kind === RemoteKind.DROP && actor_uri !== undefined && created_at !== undefined;
  if (!isFit || !isOnHostOf(uri, actor_uri)) return { fault: "unfit" };
  return { ...put, kind: RemoteKind.DROP, actor_uri, created_at };
}

function parse(document: string): Record<string, unknown> | undefined {
  try {
    const content: unknown = JSON.parse(document);
    return isObject(content) ? content : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the first key that names the actor as its owner; empty if there is none. */
function keyOf(content: Record<string, unknown>, uri: string): string {
  const keys = valuesOf(content, "publicKey").filter(isObject);
  const pem = keys.find(({ owner }) => typeof owner === "string" && isSameUri(owner, uri))?.["publicKeyPem"];
  return typeof pem === "string" ? pem : "";
}
