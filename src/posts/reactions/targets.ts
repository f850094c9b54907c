import { AppError } from "../../kernel/errors.js";
import { DAY } from "../../kernel/time.js";
import { readReplyTo } from "../drops/addressing.js";
import type { StoredDrop } from "../drops/drops.sql.js";
import { importedId } from "../drops/ids.js";
import { isUri } from "../drops/request.js";
import { judged, visibleTo } from "../drops/visibility.js";
import type { Unlinked } from "./adopt.sql.js";
import type { ReactionsDeps } from "./deps.js";

/** A drop of this server, or a remote one, to which people react. */
export interface Target extends Pick<StoredDrop, "user_id" | "visibility" | "recipients" | "repost_of" | "deleted_at"> {
  /** A drop id or a URI. */
  readonly id: string;
  /** The id under which it has reactions; that of a deleted remote drop may be empty. */
  readonly key: string;
  readonly isRemote: boolean;
  readonly repost_author?: string;
}

/** Finds a drop, deleted or not, whoever may see it. */
export async function targetOf(deps: AdoptDeps, id: string): Promise<Target | undefined> {
  if (!isUri(id)) {
    const [drop] = await deps.store.drops.byIds([id]);
    return drop && { ...drop, id, key: id, isRemote: false };
  }
  const object = await deps.store.remote.get(id);
  if (object === undefined || object.kind > 1) return undefined;
  const key = object.deleted_at === null ? ((await reactionKeys(deps, [id])).get(id) ?? "") : "";
  return { ...judged(object), id, key, isRemote: true, repost_of: "" };
}

/** Finds a drop, deleted or not, that a person (unset: anybody) may see. @throws AppError `notfound` */
export async function findTarget(deps: ReactionsDeps, field: string, id: string, viewer?: string): Promise<Target> {
  const target = await targetOf(deps, id);
  const shown = target === undefined ? [] : await visibleTo(deps, viewer, [target]);
  if (shown[0] === undefined) throw new AppError("notfound", `${field}: there is no such drop`);
  return shown[0];
}

export interface AdoptDeps extends Pick<ReactionsDeps, "now"> {
  readonly store: ReactionsDeps["store"];
  /** Without it no document replies to a drop of this server. */
  readonly config?: Pick<ReactionsDeps["config"], "publicUrl">;
  readonly wakeRelay?: ReactionsDeps["wakeRelay"];
}

const MAX_AGE_MS = 3_650 * DAY;

/** A drop may claim any age: ids of the oldest ones begin with a later time, so that months stay few. */
export const keyFor = (createdAt: number, { now }: Pick<AdoptDeps, "now">): string =>
  importedId(Math.max(createdAt, now() - MAX_AGE_MS));

export type Linkable = Unlinked & { readonly drop_id: string };

/** Gives drops of an earlier version their ids, and reads what they reply to. */
export async function adopt(deps: AdoptDeps, drops: readonly Unlinked[]): Promise<Linkable[]> {
  const isAdopted = (drop: Unlinked): drop is Linkable => drop.drop_id !== null;
  const without = drops.filter((drop) => !isAdopted(drop));
  if (without.length === 0) return drops.filter(isAdopted);
  const { links } = deps.store;
  const adopted = without.map((drop) => ({
    uri: drop.uri,
    drop_id: keyFor(drop.created_at, deps),
    reply_to: drop.deleted ? null : (readReplyTo(drop.document, drop.uri, deps.config) ?? null),
  }));
  await links.adopt(adopted);
  // Another process may have been first.
  const uris = without.map(({ uri }) => uri);
  return [...drops, ...(await links.unlinked(uris.length, uris))].filter(isAdopted);
}

/** Resolves to the id under which the drop that is replied to has reactions, if it exists. */
export async function parentKey(deps: AdoptDeps, replyTo: string): Promise<string | undefined> {
  if (replyTo === "") return undefined;
  return isUri(replyTo) ? (await reactionKeys(deps, [replyTo])).get(replyTo) : replyTo;
}

/** Resolves to the ids under which remote drops have reactions, and makes their months. */
async function reactionKeys(deps: AdoptDeps, uris: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const { links } = deps.store;
  let keys = await links.keys(uris);
  const without = uris.filter((uri) => !keys.has(uri));
  if (without.length > 0) {
    await adopt(deps, await links.unlinked(without.length, without));
    keys = await links.keys(uris);
  }
  for (const key of keys.values()) await links.ensureMonth(key);
  return keys;
}
