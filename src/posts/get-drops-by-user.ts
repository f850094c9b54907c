import { type GetDropsByUserIDRequest, type GetDropsByUserIDResponse, RemoteKind } from "../gen/avion/posts.js";
import { invalid } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { compareBytes, dateOfId } from "../kernel/ids.js";
import { readSize, readTime } from "../kernel/paging.js";
import type { PostsDeps } from "./deps.js";
import { presentListed } from "./present.js";
import type { ListedDrop, Position } from "./reads.sql.js";
import { AUTHOR_PAGES, isUri } from "./request.js";

/** Newest first; of a foreign actor the drops stored here. */
export const getDropsByUser =
  (deps: PostsDeps) =>
  async (request: GetDropsByUserIDRequest): Promise<GetDropsByUserIDResponse> => {
    const author = readId("user_id", request.user_id);
    const limit = readSize("limit", request.limit, AUTHOR_PAGES);
    const below = await readPosition(deps, request);
    const { drops, remote } = deps.store;
    const own = await drops.byAuthor(author, below, limit);
    const foreign = isUri(author) ? await remote.byActor(author, below, limit) : [];
    const listed = foreign.length === 0 ? own : [...own, ...foreign].sort(newestFirst).slice(0, limit);
    return { drops: listed.map(presentListed) };
  };

const newestFirst = (a: ListedDrop, b: ListedDrop): number =>
  b.createdAt - a.createdAt || compareBytes(b.dropId, a.dropId);

/** Answered drops are below the position; undefined: from the newest. */
async function readPosition(
  { store }: PostsDeps,
  request: Pick<GetDropsByUserIDRequest, "before" | "max_id">,
): Promise<Position | undefined> {
  const before = readTime("before", request.before);
  const id = request.max_id;
  if (id.includes("\0")) throw invalid("max_id", "must not contain NUL");
  // The empty id sorts before every id, so that `before` alone excludes its whole millisecond.
  if (before !== 0) return { createdAt: before, id };
  if (id === "") return undefined;
  const createdAt = dateOfId(id) ?? (isUri(id) ? await dateOfForeign(store, id) : undefined);
  if (createdAt === undefined) throw invalid("max_id", "is neither a known drop nor dated");
  return { createdAt, id };
}

/** Deleted drops keep their position: a reader may hold one as its cursor. */
async function dateOfForeign({ remote }: Pick<PostsDeps["store"], "remote">, uri: string): Promise<number | undefined> {
  const object = await remote.get(uri);
  return object?.kind === RemoteKind.DROP ? object.createdAt : undefined;
}
