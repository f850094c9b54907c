import { AppError } from "../../kernel/errors.js";
import type { StoredDrop } from "../drops/drops.sql.js";
import { isUri } from "../drops/request.js";
import { judged, visibleTo } from "../drops/visibility.js";
import { type AdoptDeps, reactionKeys } from "./adopt.js";
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
