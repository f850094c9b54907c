import { RemoteKind } from "../../gen/avion/posts.js";
import { invalid } from "../../kernel/errors.js";
import { isObject, narrowed, uriAmong, valuesOf } from "../drops/addressing.js";
import { isOnHostOf, isSameUri } from "../drops/uris.js";

const ACTORS: ReadonlySet<string> = new Set(["Application", "Group", "Organization", "Person", "Service"]);
const DROPS: ReadonlySet<string> = new Set([
  ...["Article", "Audio", "Document", "Event", "Image", "Note", "Page", "Question", "Video"],
]);

const NO_METHOD = "no method takes it";
const REACTION = "PutRemoteReaction takes it";

/** A question is an activity, too; servers send it as a drop. */
const METHODS: Readonly<Record<string, string>> = {
  Create: NO_METHOD,
  Update: NO_METHOD,
  Announce: REACTION,
  Like: REACTION,
  Delete: "DeleteRemoteObject takes it",
  Tombstone: "DeleteRemoteObject takes it",
  Undo: "DeleteRemoteReaction, UserService.Unfollow or UserService.Unblock takes it",
  Follow: "UserService.Follow takes it",
  Block: "UserService.Block takes it",
  Reject: "UserService.Unfollow takes it",
  Move: "UserService.Follow takes it, for each follower, with replaces",
  ...Object.fromEntries(
    ["Collection", "CollectionPage", "OrderedCollection", "OrderedCollectionPage"].map((type) => [type, NO_METHOD]),
  ),
};

const WRAPPERS: ReadonlySet<string> = new Set(["Create", "Update", "Announce"]);
/** A group announces the Create of a note. */
const MAX_WRAPPERS = 3;

const AS = /^(as:|https?:\/\/www\.w3\.org\/ns\/activitystreams#)/;

function typesOf(document: unknown): string[] {
  const types = [...valuesOf(document, "type"), ...valuesOf(document, "@type")];
  return types.filter((type) => typeof type === "string").map((type) => type.replace(AS, ""));
}

/** Returns undefined if no type is known. */
export function kindOf(document: unknown): RemoteKind | undefined {
  const types = typesOf(document);
  if (types.some((type) => type in METHODS)) return RemoteKind.UNSPECIFIED;
  if (types.some((type) => ACTORS.has(type))) return RemoteKind.ACTOR;
  return types.some((type) => DROPS.has(type)) ? RemoteKind.DROP : undefined;
}

/**
 * Returns the type of an activity, undefined for another document. A document of an unknown type that has an object is
 * an activity.
 */
function activityOf(document: Readonly<Record<string, unknown>>): string | undefined {
  const types = typesOf(document);
  const known = types.find((type) => Object.hasOwn(METHODS, type));
  return known ?? (kindOf(document) === undefined && "object" in document ? types[0] : undefined);
}

const named = (type: string): string => `is ${/^[AEIOU]/.test(type) ? "an" : "a"} ${type.slice(0, 100)}`;

/**
 * Returns the document of a drop or an actor as it came; of an activity around it the object, with the narrower
 * audience of the two. @throws AppError `invalid` for a document of anything else
 */
export function readReceived(document: string, uri: string, kind: RemoteKind): string {
  const received: unknown = JSON.parse(document);
  if (!isObject(received)) throw invalid("document", "is not a JSON object");
  const content = unwrapped(received, uri);
  const [type] = typesOf(content);
  if (type !== undefined && (kindOf(content) ?? kind) !== kind)
    throw invalid("document", `${named(type)}: PutRemoteObject takes it with another kind`);
  const id = content["id"] ?? content["@id"];
  if (typeof id === "string" && id !== "" && !isSameUri(id, uri))
    throw invalid("uri", `is not the id of the ${content === received ? "document" : "object of the document"}`);
  return content === received ? document : JSON.stringify(content);
}

type Content = Readonly<Record<string, unknown>>;

function unwrapped(received: Content, uri: string): Content {
  let content = received;
  for (let depth = 0; ; depth++) {
    const activity = activityOf(content);
    if (activity === undefined) return content;
    const [object, ...others] = valuesOf(content, "object");
    const isWrapper = WRAPPERS.has(activity) && depth < MAX_WRAPPERS;
    if (!isWrapper || !isObject(object) || others.length > 0 || typesOf(object).length === 0)
      throw invalid("document", `${named(activity)}${isWrapper ? " without its object" : ""}: ${methodFor(activity)}`);
    const actor = uriAmong(content, "actor");
    // An object proves nothing in an activity of another server.
    if (actor === undefined || !isOnHostOf(actor, uri))
      throw invalid("document", `${named(activity)} whose actor is not on the server of uri: ${methodFor(activity)}`);
    content = { "@context": content["@context"], ...narrowed(object, content) };
  }
}

const methodFor = (activity: string): string => METHODS[activity] ?? NO_METHOD;

/** Returns true if the document of an actor says that the actor approves followers. */
export function approvesFollowers(document: string): boolean {
  const content: unknown = JSON.parse(document);
  const names = isObject(content) ? Object.keys(content) : [];
  const terms = names.filter((name) => name.replace(AS, "") === "manuallyApprovesFollowers");
  return terms.some((name) => valuesOf(content, name).includes(true));
}

const TIME = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d:?\d\d)?$/i;

/** Reads a time of ISO 8601, which is UTC if the text names no zone. Date.parse alone takes 30 February for 1 March. */
export function timeOf(text: unknown): number | undefined {
  const [, day = "", time = "", zone = "Z"] = (typeof text === "string" && TIME.exec(text)) || [];
  const midnight = Date.parse(`${day}T00:00:00Z`);
  if (Number.isNaN(midnight) || !new Date(midnight).toISOString().startsWith(day)) return undefined;
  const ms = Date.parse(`${day}${time}${zone}`.toUpperCase());
  return Number.isNaN(ms) || ms < 0 ? undefined : ms;
}

/**
 * Returns 0 if a document says nothing. A drop that was never edited is as old as it is; an actor names no time then.
 */
export function updatedAtOf(document: string, kind: RemoteKind): number {
  const content: unknown = JSON.parse(document);
  if (!isObject(content)) return 0;
  return timeOf(content["updated"]) ?? ((kind === RemoteKind.DROP && timeOf(content["published"])) || 0);
}
