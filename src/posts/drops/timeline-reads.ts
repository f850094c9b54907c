import * as wire from "../../gen/avion/posts.js";
import { invalid } from "../../kernel/errors.js";
import { readId } from "../../kernel/fields.js";
import { compareBytes, dateOfId } from "../../kernel/ids.js";
import { type PageLimits, readSize, readTime } from "../../kernel/paging.js";
import type { DropsDeps } from "./deps.js";
import type { Position } from "./drops.sql.js";
import { isUri, readWholeNumber } from "./request.js";

const AUTHOR_PAGES: PageLimits = { default: 20, max: 1_000 };

/** Pages of changes: drops without their text, which fit a message of 4 MiB with all their recipients. */
const CHANGE_PAGES: PageLimits = { default: 1_000, max: 1_000 };

/** The timeline service reads drops without their texts, for no viewer. */
export const timelineReads = ({ store, tokens }: DropsDeps) => ({
  async getDropsByUserId(request: wire.GetDropsByUserIDRequest): Promise<wire.GetDropsByUserIDResponse> {
    const author = readId("user_id", request.user_id);
    const limit = readSize("limit", request.limit, AUTHOR_PAGES);
    const below = await readPosition(store.remote, request);
    const reader = readReader(request);
    const local = await store.drops.byAuthor(author, { below, limit, reader });
    if (!isUri(author)) return local;
    const foreign = await store.remote.byActor(author, below, limit);
    const last = local.end ? undefined : local.drops.at(-1);
    const within = last === undefined ? foreign : foreign.filter((drop) => newestFirst(drop, last) < 0);
    const drops = [...local.drops, ...within.map((drop) => seenBy(reader, drop))].sort(newestFirst);
    const end = local.end && foreign.length < limit && drops.length <= limit;
    return { drops: drops.slice(0, limit), end };
  },

  /** Remote drops are listed when they are deleted only: others would be admitted as drops of this server. */
  async listDrops(request: wire.ListDropsRequest): Promise<wire.ListDropsResponse> {
    const since = readTime("since", request.since);
    const until = readTime("until", request.until) || Number.MAX_SAFE_INTEGER;
    const page = tokens.open<[number, string]>(["drops", request.since, request.until], request, CHANGE_PAGES);
    const changed = await store.drops.changes(page.after ?? [since, ""], until, page.limit);
    const { items, next_page_token } = page.pageOf(changed, (drop) => [drop.changed_at, drop.drop_id]);
    return { drops: items, next_page_token };
  },

  getRetention: async (): Promise<wire.GetRetentionResponse> => ({ kept_since: await store.retention.start() }),
});

function readReader({ reader_id, without_direct }: wire.GetDropsByUserIDRequest): string | undefined {
  if (without_direct) return "";
  return reader_id === "" ? undefined : readId("reader_id", reader_id);
}

/** Removes the other recipients. The caller removes drops that the reader may not see. */
function seenBy(reader: string | undefined, drop: wire.Drop): wire.Drop {
  if (reader === undefined) return drop;
  return { ...drop, recipients: drop.recipients.filter((recipient) => recipient === reader) };
}

const newestFirst = (a: wire.Drop, b: wire.Drop): number =>
  b.created_at - a.created_at || compareBytes(b.drop_id, a.drop_id);

async function readPosition(
  remote: DropsDeps["store"]["remote"],
  request: wire.GetDropsByUserIDRequest,
): Promise<Position | undefined> {
  const before = readWholeNumber("before", request.before);
  const id = request.max_id;
  if (id.includes("\0")) throw invalid("max_id", "must not contain NUL");
  // The empty id sorts before every id, so that `before` alone excludes its whole millisecond.
  if (before !== 0) return { createdAt: before, id };
  if (id === "") return undefined;
  // Deleted drops keep their position: a reader may hold one as its cursor.
  const foreign = dateOfId(id) === undefined && isUri(id) ? await remote.get(id) : undefined;
  const createdAt = foreign?.kind === wire.RemoteKind.DROP ? foreign.created_at : dateOfId(id);
  if (createdAt === undefined) throw invalid("max_id", "is no known drop, and its id holds no date");
  return { createdAt, id };
}
