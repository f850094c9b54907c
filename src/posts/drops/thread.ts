import * as wire from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import type { DropsDeps } from "./deps.js";
import { presentEither, presentRemote, type Reply } from "./drops.js";
import type { StoredDrop } from "./drops.sql.js";
import { FIRST_ID, LAST_ID } from "./ids.js";
import { type Chunk, FIELD_BYTES, fillPage, MESSAGE_BYTES } from "./pages.js";
import { askingOnce } from "./relations.js";
import type { StoredRemoteObject } from "./remote-drops.sql.js";
import { isUri, readAnyDropId, readViewer } from "./request.js";
import { localDropOr } from "./uris.js";
import { judged, type ShownDrop, shownTo } from "./visibility.js";

const MAX_ANCESTORS = 50;
const MAX_DEPTH = 6;
const THREAD_PAGES = { default: 100, max: 100 };
/** The rest is for the drop itself. */
const ANCESTOR_BYTES = MESSAGE_BYTES / 4;
const REPLY_BYTES = MESSAGE_BYTES / 2;

/**
 * A reply and its way from the drop of the thread: the ids of the replies above it, and its own. Ways in their order are
 * replies depth first, and siblings from the oldest.
 */
type Node = Reply & { readonly way: readonly string[] };

/** A page goes on after a way. `told` is how many replies of the way were on a page: a tombstone may be told later. */
type Position = readonly [told: number, ...way: string[]];

interface Thread {
  readonly deps: DropsDeps;
  readonly viewer: string | undefined;
  readonly root: { readonly id: string; readonly key: string };
  /** Replies by their ids; undefined for those that the viewer does not see. */
  readonly known: Map<string, Node | undefined>;
}

export const threads = (deps: DropsDeps) => ({
  /** Answers a drop with what it replies to, and a page of the replies to it and to each other. */
  async getThread(request: wire.GetThreadRequest): Promise<wire.GetThreadResponse> {
    const id = readAnyDropId("drop_id", localDropOr(request.drop_id, deps.config));
    const viewer = readViewer(request.viewer_id);
    const page = deps.tokens.open<Position>(["thread", id, viewer ?? ""], request, THREAD_PAGES);
    const asking = askingOnce(deps);
    const [drop] = await shownByIds(asking, viewer, [id]);
    if (drop === undefined) throw new AppError("notfound", "drop_id: there is no such drop");
    const thread = { deps: asking, viewer, root: { id, key: drop.drop_id ?? "" }, known: new Map() };
    const { items, next_page_token } = await fillPage<Node, Position>(page, {
      read: (after, limit) => readReplies(thread, after ?? [0], limit),
      keep: async (replies) => replies,
      keyOf: ({ way }) => [way.length, ...way],
      most: THREAD_PAGES.max,
      bytesOf: (reply) => bytesOf(present(reply)),
      room: REPLY_BYTES,
    });
    const replies = items.map((reply) => ({ reply: present(reply), depth: reply.way.length }));
    return { ancestors: await ancestorsOf(asking, viewer, id), drop: present(drop), replies, next_page_token };
  },
});

type Shown = ShownDrop | StoredRemoteObject;

const present = (drop: Shown): wire.GetDropResponse => ("uri" in drop ? presentRemote(drop) : presentEither(drop));

const bytesOf = (drop: wire.GetDropResponse): number =>
  2 * FIELD_BYTES + wire.GetDropResponse.encode(drop).finish().length;

/** Finds drops that the viewer may see, deleted or not, in the order of their ids or URIs. */
async function shownByIds(deps: DropsDeps, viewer: string | undefined, ids: readonly string[]): Promise<Shown[]> {
  const [local, uris] = [ids.filter((id) => !isUri(id)), ids.filter(isUri)];
  const [drops, remote] = await Promise.all([
    local.length === 0 ? [] : deps.store.drops.byIds(local),
    uris.length === 0 ? [] : deps.store.remote.dropsByUris(uris),
  ]);
  const shown = await shownTo<Reply | (StoredRemoteObject & { user_id: string })>(deps, viewer, [
    ...drops,
    ...remote.map(judged),
  ]);
  const byId = new Map(shown.map((drop) => ["uri" in drop ? drop.uri : drop.drop_id, drop]));
  return ids.flatMap((id) => byId.get(id) ?? []);
}

/** The nearest drops above a drop that fit the message, the root of the thread first. */
async function ancestorsOf(deps: DropsDeps, viewer: string | undefined, id: string): Promise<wire.GetDropResponse[]> {
  const above = new Set(await deps.store.threads.above(id, MAX_ANCESTORS));
  above.delete(id);
  if (above.size === 0) return [];
  const shown = (await shownByIds(deps, viewer, [...above])).map(present);
  let bytes = 0;
  const fitting = shown.filter((drop) => {
    bytes += bytesOf(drop);
    return bytes <= ANCESTOR_BYTES;
  });
  return fitting.reverse();
}

const compareWays = (a: readonly string[], b: readonly string[]): number => {
  const [first, second] = [a.join(), b.join()];
  return first < second ? -1 : Number(first > second);
};

/**
 * Reads a chunk of a thread level by level, with two queries each. A level ends where it has `limit` replies: beyond,
 * nothing is known, and the chunk ends at the first such end.
 */
async function readReplies(thread: Thread, position: Position, limit: number): Promise<Chunk<Node, Position>> {
  const [told, ...asked] = position;
  const spine = await spineOf(thread, asked);
  const way = asked.slice(0, spine.length + 1);
  const ends: (readonly string[])[] = [];
  const isKnown = (node: Node): boolean => ends.every((end) => compareWays(node.way, end) <= 0);
  let [nodes, level]: [Node[], Node[]] = [[], []];
  for (let depth = 1; depth <= MAX_DEPTH; depth++) {
    const parents = level.map(({ way: above, ...reply }) => ({ id: idOf(reply), above, after: FIRST_ID }));
    const start = depth === 1 ? { id: thread.root.id, above: [] } : startAt(spine[depth - 2]);
    if (start !== undefined) parents.unshift({ ...start, after: way[depth - 1] ?? FIRST_ID });
    if (parents.length === 0) break;
    const children = await childrenOf(thread, parents, limit);
    const last = children.at(-1);
    if (last !== undefined && children.length === limit) ends.push([...last.way, LAST_ID]);
    level = await shownAmong(
      thread,
      children.filter((node) => !isCircle(thread, node)),
    );
    nodes = [...nodes, ...level].sort((a, b) => compareWays(a.way, b.way));
    const cut = nodes.length > limit ? nodes[limit - 1] : undefined;
    if (cut !== undefined) ends.push(cut.way);
    [nodes, level] = [nodes.filter(isKnown), level.filter(isKnown)];
  }
  const rows = withoutBare([...spine.slice(told), ...nodes]);
  const [end] = ends.sort(compareWays);
  return { rows, next: end && [toldOf(end, position, rows), ...end] };
}

const idOf = (reply: Pick<StoredDrop, "drop_id"> | { readonly uri: string }): string =>
  "uri" in reply ? reply.uri : reply.drop_id;

const startAt = (node: Node | undefined) => node && { id: idOf(node), above: node.way };

/** Omits tombstones that nothing hangs from. */
function withoutBare(nodes: readonly Node[]): Node[] {
  const living = nodes.filter(({ deleted_at }) => deleted_at === null);
  const carrying = new Set(living.flatMap(({ way }) => way));
  return nodes.filter(({ drop_id }) => carrying.has(drop_id));
}

/** If a reply is on a page, so are those above it. */
function toldOf(end: readonly string[], [told, ...way]: Position, rows: readonly Node[]): number {
  const ids = new Set([...way.slice(0, told), ...rows.map(({ drop_id }) => drop_id)]);
  const untold = end.findIndex((id) => !ids.has(id));
  return untold < 0 ? end.length : untold;
}

interface Parent {
  readonly id: string;
  readonly above: readonly string[];
  readonly after: string;
}

/** Returns the first replies to these parents, in the order of their ways. */
async function childrenOf({ deps, viewer = "" }: Thread, parents: readonly Parent[], limit: number) {
  const level = { parents: parents.map(({ id }) => id), after: parents.map(({ after }) => after), viewer };
  const { threads: reads } = deps.store;
  const [local, remote] = await Promise.all([reads.local(level, limit), reads.remote(level, limit)]);
  return [...local, ...remote.map(judged)]
    .map(({ parent, ...reply }): Node => {
      const above = parents[parent - 1]?.above ?? [];
      return { ...reply, way: [...above, reply.drop_id] };
    })
    .sort((a, b) => compareWays(a.way, b.way))
    .slice(0, limit);
}

/** Documents may reply to each other in a circle. */
const isCircle = ({ root }: Thread, { way, drop_id }: Node): boolean =>
  drop_id === root.key || way.indexOf(drop_id) < way.length - 1;

async function shownAmong({ deps, viewer, known }: Thread, nodes: readonly Node[]): Promise<Node[]> {
  for (const { drop_id } of nodes) known.set(drop_id, undefined);
  const shown = [...(await shownTo(deps, viewer, nodes))];
  for (const node of shown) known.set(node.drop_id, node);
  return shown;
}

/** Returns the replies of a way, down to the first that the viewer does not see. */
async function spineOf(thread: Thread, way: readonly string[]): Promise<Node[]> {
  const { known, deps } = thread;
  const unknown = way.filter((id) => !known.has(id));
  if (unknown.length > 0) {
    const { drops, threads: reads } = deps.store;
    const [local, remote] = await Promise.all([drops.byIds(unknown), reads.remoteByKeys(unknown)]);
    const replies = [...local, ...remote.map(judged)];
    const nodes = replies.map((reply): Node => ({ ...reply, way: way.slice(0, way.indexOf(reply.drop_id) + 1) }));
    await shownAmong(thread, nodes);
  }
  const spine: Node[] = [];
  for (const id of way) {
    const node = known.get(id);
    if (node === undefined) break;
    spine.push(node);
  }
  return spine;
}
