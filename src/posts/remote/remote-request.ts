import { spelled } from "../../contracts/spellings.js";
import * as wire from "../../gen/avion/posts.js";
import { AppError, invalid } from "../../kernel/errors.js";
import { readText, storedIdFault } from "../../kernel/fields.js";
import { MAX_ID_BYTES } from "../../kernel/ids.js";
import { readReplyTo } from "../drops/addressing.js";
import { KIND_NAMES, requireKept } from "../drops/drops.js";
import { NO_PAYLOAD, readDocumentPayload } from "../drops/payload.js";
import { isUri, readAnyDropId, readUri, readWholeNumber } from "../drops/request.js";
import { isOnHostOf, localDropOr, urisOf } from "../drops/uris.js";
import { isBetweenBlocked } from "../drops/visibility.js";
import { keyFor } from "../reactions/targets.js";
import { readAudience, refuseAudience } from "./audience.js";
import type { RemoteDeps } from "./deps.js";
import { readReceived, updatedAtOf } from "./received-documents.js";
import type { NewRemoteObject } from "./remote.sql.js";
import { readWebfinger } from "./webfinger.js";

const { RemoteKind } = wire;

export const MAX_URI_BYTES = 2_048;
const MAX_DOCUMENT_BYTES = 256 * 1_024;
const MAX_KEY_BYTES = 16 * 1_024;
const MAX_TYPE_CHARACTERS = 200;
const PEM = /^-----BEGIN [A-Z ]+-----\r?\n/;

const FIELDS_OF = {
  [RemoteKind.DROP]: ["actor_uri", "reply_to"],
  [RemoteKind.ACTOR]: ["public_key", "webfinger", "webfinger_type", "webfinger_href"],
  [RemoteKind.SERVER]: ["lrdd_template"],
} as const satisfies Partial<Record<wire.RemoteKind, readonly (keyof wire.PutRemoteObjectRequest)[]>>;

function refuseOtherFields(request: wire.PutRemoteObjectRequest): void {
  for (const [kind, fields] of Object.entries(FIELDS_OF)) {
    const other = Number(kind) === request.kind ? undefined : fields.find((field) => request[field] !== "");
    const name = KIND_NAMES[Number(kind) as wire.RemoteKind] as string;
    if (other !== undefined) throw invalid(other, `is of ${name === "actor" ? "an" : "a"} ${name}`);
  }
}

export async function readObject(received: wire.PutRemoteObjectRequest, deps: RemoteDeps): Promise<NewRemoteObject> {
  const { kind } = received;
  if (kind < RemoteKind.DROP || kind > RemoteKind.SERVER) throw invalid("kind", "must be drop, actor or server");
  const isDrop = kind === RemoteKind.DROP;
  refuseOtherFields(received);
  const request = { ...received, document: readDocument(received) };
  const uris = urisOf(deps.config);
  for (const field of ["uri", "actor_uri"] as const)
    if (uris?.isOwn(request[field]))
      throw invalid(field, "is of this server: CreateDrop, EditDrop and SetProfile are for these");
  const object = {
    uri: readUri("uri", request.uri, kind === RemoteKind.SERVER ? MAX_URI_BYTES : MAX_ID_BYTES),
    kind,
    actor_uri: request.actor_uri === "" ? "" : readUri("actor_uri", request.actor_uri, MAX_ID_BYTES),
    created_at: isDrop ? await readCreatedAt(request.created_at, deps) : 0,
    document: request.document,
    // The clock of another server may be ahead.
    updated_at: Math.min(updatedAtOf(request.document, kind), deps.now()),
    public_key: readKey(request.public_key),
    webfinger: request.webfinger === "" ? "" : readWebfinger(request.webfinger),
    webfinger_type: readText("webfinger_type", request.webfinger_type, MAX_TYPE_CHARACTERS),
    webfinger_href:
      request.webfinger_href === "" ? "" : readUri("webfinger_href", request.webfinger_href, MAX_URI_BYTES),
    lrdd_template: readTemplate(request.lrdd_template),
  };
  requireOnHost("actor_uri", object.actor_uri, object.uri);
  const reply_to = isDrop ? await readReply(request, deps) : "";
  const audience = isDrop ? await readAudience(request, object.actor_uri, deps) : refuseAudience(request);
  await refuseToBlocked(deps, { ...object, reply_to });
  const { mentions, ...payload } = isDrop ? readDocumentPayload(JSON.parse(object.document), deps.config) : NONE;
  return {
    ...object,
    ...audience,
    reply_to,
    reply_to_author: reply_to === "" ? "" : await deps.store.remote.authorOf(reply_to),
    mentions: await withoutErased(mentions, deps),
    payload,
    drop_id: isDrop ? keyFor(object.created_at, deps) : null,
  };
}

const NONE = { mentions: [], ...NO_PAYLOAD };

async function withoutErased(people: string[], { store }: RemoteDeps): Promise<string[]> {
  if (people.length === 0) return people;
  const gone = await store.erased.among(people);
  return people.filter((person) => !gone.has(person));
}

/** @throws AppError `invalid` for an actor who speaks for another server */
export function requireOnHost(field: string, actorUri: string, uri: string): void {
  if (actorUri !== "" && !isOnHostOf(actorUri, uri)) throw invalid(field, "is on another server than uri");
}

async function readReply(request: wire.PutRemoteObjectRequest, { config, store }: RemoteDeps): Promise<string> {
  if (request.reply_to === "") {
    const [named = ""] = await spelled(
      [readReplyTo(request.document, request.uri, config) ?? ""],
      store.remote.storedAmong,
    );
    return storedIdFault(named) === undefined ? named : "";
  }
  return readAnyDropId("reply_to", localDropOr(request.reply_to, config));
}

/**
 * Refuses a new reply across a block. A stored drop is updated even if a block came since. @throws AppError `notfound`
 */
async function refuseToBlocked(deps: RemoteDeps, { uri, actor_uri, reply_to }: NewReply): Promise<void> {
  if (reply_to === "" || isUri(reply_to) || actor_uri === "" || deps.relationsTo === undefined) return;
  const [parent] = await deps.store.drops.byIds([reply_to]);
  if (parent === undefined) return;
  const isRefused = await isBetweenBlocked(deps, { field: "actor_uri", user: actor_uri }, parent);
  if (isRefused && (await deps.store.remote.get(uri)) === undefined)
    throw new AppError("notfound", "reply_to: there is no such drop");
}

type NewReply = Pick<NewRemoteObject, "uri" | "actor_uri" | "reply_to">;

/** Host metadata have a URL template (RFC 6415), in which the address takes the place of {uri}. */
function readTemplate(template: string): string {
  if (template === "") return template;
  if (!template.includes("{uri}")) throw invalid("lrdd_template", "has no {uri}");
  readUri("lrdd_template", template.replaceAll("{uri}", "uri"), MAX_URI_BYTES);
  return template;
}

/** The clock of another server may be ahead; 0: not known. */
async function readCreatedAt(createdAt: number, deps: RemoteDeps): Promise<number> {
  readWholeNumber("created_at", createdAt);
  if (createdAt === 0) return deps.now();
  await requireKept(createdAt, deps);
  return Math.min(createdAt, deps.now());
}

function readDocument({ document, uri, kind }: wire.PutRemoteObjectRequest): string {
  if (Buffer.byteLength(document) > MAX_DOCUMENT_BYTES)
    throw invalid("document", `must have at most ${MAX_DOCUMENT_BYTES} bytes`);
  try {
    JSON.parse(document);
  } catch {
    throw invalid("document", "is not JSON");
  }
  return kind === RemoteKind.SERVER ? document : readReceived(document, uri, kind);
}

function readKey(key: string): string {
  if (key === "") return key;
  if (!PEM.test(key) || key.includes("\0")) throw invalid("public_key", "is not PEM");
  if (Buffer.byteLength(key) > MAX_KEY_BYTES) throw invalid("public_key", `must have at most ${MAX_KEY_BYTES} bytes`);
  return key;
}
