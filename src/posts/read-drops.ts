import type * as wire from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import type { PageLimits } from "../kernel/paging.js";
import { findDrop, type PostsDeps, presentDetails, presentEither, visibleTo } from "./drops.js";
import { FIRST_ID } from "./ids.js";
import { requireShown } from "./remote-objects.js";
import {
  isUri,
  MAX_SUMMARY_CHARACTERS,
  readAnyDropId,
  readDropId,
  readDropIds,
  readViewer,
  readWholeNumber,
} from "./request.js";

/** gRPC clients take messages of at most this size by default. */
const MESSAGE_BYTES = 4 * 1024 * 1024;
/** The other fields of a drop, above all its recipients, take at most so much. */
const DROP_BYTES = 4 * 1024;
const CHARACTER_BYTES = 4;
const DEFAULT_DROPS = 20;
const MAX_DROPS = 100;

/** A page has as many drops of the longest text as fit a message. */
function textPages({ maxBodyCharacters }: PostsDeps["config"]): PageLimits {
  const bytes = CHARACTER_BYTES * (maxBodyCharacters + MAX_SUMMARY_CHARACTERS) + DROP_BYTES;
  const max = Math.min(MAX_DROPS, Math.floor(MESSAGE_BYTES / bytes));
  return { default: Math.min(DEFAULT_DROPS, max), max };
}

const ABOVE_EVERY_REVISION = 2 ** 31;

/** Returns drops with their texts, as a viewer may see them. */
export const readDrops = (deps: PostsDeps) => ({
  async getDrop(request: wire.GetDropRequest): Promise<wire.GetDropResponse> {
    const dropId = readDropId("drop_id", request.drop_id);
    const revision = readWholeNumber("revision", request.revision);
    const drop = await findDrop(deps, dropId, readViewer(request.viewer_id));
    if (revision === 0 || drop.deleted_at !== null || drop.revision === revision) return presentEither(drop);
    const [version] = await deps.store.drops.revisions(dropId, revision + 1, 1);
    if (version?.revision !== revision) throw new AppError("notfound", "revision: there is no such version");
    return { drop: presentDetails(version) };
  },

  /** Drops are in the order asked for; unknown ones are left out. */
  async getDrops(request: wire.GetDropsRequest): Promise<wire.GetDropsResponse> {
    const ids = readDropIds("drop_ids", request.drop_ids, textPages(deps.config).max);
    const own = ids.filter((id) => !isUri(id));
    const viewer = readViewer(request.viewer_id);
    const stored = own.length === 0 ? [] : await deps.store.drops.byIds(own);
    const drops = await visibleTo(deps, viewer, stored);
    const byId = new Map(drops.map((drop) => [drop.drop_id, presentEither(drop)]));
    return { results: ids.flatMap((id) => byId.get(id) ?? []) };
  },

  async listRevisions(request: wire.ListRevisionsRequest): Promise<wire.ListRevisionsResponse> {
    const dropId = readDropId("drop_id", request.drop_id);
    const page = deps.tokens.open<[number]>(["revisions", dropId], request, textPages(deps.config));
    const viewer = readViewer(request.viewer_id);
    if (viewer !== undefined) await findDrop(deps, dropId, viewer);
    const [below] = page.after ?? [ABOVE_EVERY_REVISION];
    const versions = await deps.store.drops.revisions(dropId, below, page.limit);
    if (versions.length === 0) await findDrop(deps, dropId);
    const { items, next_page_token } = page.pageOf(versions, ({ revision }) => [revision]);
    return { revisions: items.map(presentDetails), next_page_token };
  },

  /** Replies are listed oldest first. A deleted drop keeps its replies. */
  async listReplies(request: wire.ListRepliesRequest): Promise<wire.ListRepliesResponse> {
    const dropId = readAnyDropId("drop_id", request.drop_id);
    const viewer = readViewer(request.viewer_id);
    const page = deps.tokens.open<[string]>(["replies", dropId, viewer ?? ""], request, textPages(deps.config));
    if (viewer !== undefined) await (isUri(dropId) ? requireShown : findDrop)(deps, dropId, viewer);
    const [after] = page.after ?? [FIRST_ID];
    const replies = await deps.store.drops.replies({ replyTo: dropId, after, viewer: viewer ?? "" }, page.limit);
    if (replies.length === 0 && !isUri(dropId)) await findDrop(deps, dropId);
    const { items, next_page_token } = page.pageOf(replies, ({ drop_id }) => [drop_id]);
    const visible = await visibleTo(deps, viewer, items);
    return { replies: visible.map(presentDetails), next_page_token };
  },
});
