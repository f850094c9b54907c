import { MAX_RECIPIENTS } from "../../contracts/untrusted.js";
import * as wire from "../../gen/avion/posts.js";
import { codeOf, invalid } from "../../kernel/errors.js";
import { type Addressing, followersOf, maybeFollowers, namedFollowers, readAddressing } from "../drops/addressing.js";
import { remoteDropReceived } from "../drops/events.js";
import { readRecipients, readVisibility } from "../drops/request.js";
import { localUserOr, type OwnUrl } from "../drops/uris.js";
import type { UndecidedDrop } from "./audience.sql.js";
import type { RemoteDeps } from "./deps.js";
import type { NewRemoteObject } from "./remote.sql.js";

const { RemoteKind, Visibility } = wire;

type Audience = Pick<NewRemoteObject, "visibility" | "recipients" | "awaits_actor" | "by_document">;

/** Reads the audience of a remote drop from the request, and what the request leaves open from the document. */
export async function readAudience(
  request: wire.PutRemoteObjectRequest,
  actorUri: string,
  deps: RemoteDeps,
): Promise<Audience> {
  const by_document = request.visibility === Visibility.UNSPECIFIED && request.recipients.length === 0;
  return { ...(await readEffective(request, actorUri, deps)), by_document };
}

type Effective = Omit<Audience, "by_document">;

async function readEffective(
  request: wire.PutRemoteObjectRequest,
  actorUri: string,
  deps: RemoteDeps,
): Promise<Effective> {
  const isUnset = request.visibility === Visibility.UNSPECIFIED;
  const visibility = isUnset ? undefined : readVisibility(request.visibility);
  const recipients = readRecipients(
    request.recipients.map((recipient) => localUserOr(recipient, deps.config)),
    MAX_RECIPIENTS,
  );
  const isComplete = visibility !== undefined && (visibility !== Visibility.DIRECT || recipients.length > 0);
  const addressed = isComplete ? undefined : await readDocumentAudience(request.document, actorUri, deps);
  const effective = visibility ?? (addressed?.visibility as wire.Visibility);
  if (addressed?.awaits_actor && isUnset && recipients.length === 0) return addressed;
  // A request that names recipients is for a direct drop.
  const isDirect = effective === Visibility.DIRECT || (isUnset && addressed?.awaits_actor === true);
  if (recipients.length > 0 && !isDirect) throw invalid("recipients", "may be set for direct drops only");
  if (!isDirect) return { visibility: effective, recipients: [], awaits_actor: false };
  const named = addressed?.visibility === Visibility.DIRECT ? addressed.recipients : [];
  const people = recipients.length > 0 ? recipients : named;
  return { visibility: Visibility.DIRECT, recipients: people, awaits_actor: false };
}

async function readDocumentAudience(
  document: string,
  actorUri: string,
  { store, config }: RemoteDeps,
): Promise<Effective> {
  const actor = actorUri === "" ? undefined : await store.remote.get(actorUri);
  const isActor = actor?.kind === RemoteKind.ACTOR && actor.deleted_at === null;
  const content: unknown = JSON.parse(document);
  const addressing = readAddressing(content, followersOf(actorUri, isActor ? actor.document : undefined), config);
  if (isActor || addressing.visibility !== Visibility.DIRECT) return { ...addressing, awaits_actor: false };
  const unknown = maybeFollowers(content, actorUri);
  const people = unknown.length === 0 ? [] : await store.remote.actorsAmong(unknown);
  if (unknown.length === people.length) return { ...addressing, awaits_actor: false };
  return { visibility: Visibility.FOLLOWERS, recipients: [], awaits_actor: true };
}

export function refuseAudience({ visibility, recipients }: wire.PutRemoteObjectRequest): Audience {
  if (visibility !== Visibility.UNSPECIFIED) throw invalid("visibility", "may be set for drops only");
  if (recipients.length > 0) throw invalid("recipients", "may be set for drops only");
  return { visibility, recipients: [], awaits_actor: false, by_document: false };
}

const DROPS_AT_ONCE = 200;
/** Maximum number of batches in a call. The maintenance decides the others, and those of a call that broke off. */
const MAX_STEPS = 10;

interface DecideDeps {
  readonly store: Pick<RemoteDeps["store"], "audience" | "erased">;
  readonly config?: OwnUrl | undefined;
}

/** Decides drops that wait for an actor (unset: any) whose document is stored by now. Resolves to their number. */
export async function decideWaiting(deps: DecideDeps, actorUri?: string): Promise<number> {
  let total = 0;
  for (let step = 0; step < MAX_STEPS; step++) {
    const drops = await deps.store.audience.undecided(DROPS_AT_ONCE, actorUri);
    if (drops.length > 0) total += await decide(deps, drops);
    if (drops.length < DROPS_AT_ONCE) break;
  }
  return total;
}

/** Decides again drops that came before their actor named its followers. */
export async function decideAddressed(deps: DecideDeps, actorUri: string, document: string): Promise<number> {
  const followers = namedFollowers(document);
  if (followers.length > 0) await deps.store.audience.reopen(actorUri, followers, DROPS_AT_ONCE * MAX_STEPS);
  return decideWaiting(deps, actorUri);
}

async function decide(
  { store: { audience, erased }, config }: DecideDeps,
  drops: readonly UndecidedDrop[],
): Promise<number> {
  const read = drops.map((drop) => ({ drop, addressing: decided(drop, config) }));
  const named = read.flatMap(({ drop, addressing }) => [
    drop.reply_to_author,
    ...drop.mentions,
    ...addressing.recipients,
  ]);
  const gone = await erased.among(named);
  const decisions = read.map(({ drop, addressing: { visibility, ...addressing } }) => {
    const isTold = drop.parent_known && !gone.has(drop.reply_to_author);
    const reply_to_author = isTold ? drop.reply_to_author : "";
    const recipients = addressing.recipients.filter((recipient) => !gone.has(recipient));
    const mentions = drop.mentions.filter((mentioned) => !gone.has(mentioned));
    const received = remoteDropReceived({ ...drop, visibility, recipients, reply_to_author, mentions });
    // A drop that is decided again had an event before.
    return {
      uri: drop.uri,
      visibility,
      recipients,
      event: { ...received, messageId: `${received.messageId}:decided` },
    };
  });
  return audience.decide(decisions);
}

/**
 * Returns the audience by a document. A document that was replaced meanwhile makes a drop no more open than it was, and
 * is not refused.
 */
function decided(drop: UndecidedDrop, config: OwnUrl | undefined): Addressing {
  const followers = followersOf(drop.actor_uri, drop.actor_document);
  const forFollowers = { visibility: Visibility.FOLLOWERS, recipients: [] };
  try {
    const addressing = readAddressing(JSON.parse(drop.document), followers, config);
    return addressing.visibility >= Visibility.FOLLOWERS ? addressing : forFollowers;
  } catch (error) {
    if (codeOf(error) === "invalid") return forFollowers;
    throw error;
  }
}
