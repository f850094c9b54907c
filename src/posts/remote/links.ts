import { engagementChanged } from "../drops/events.js";
import { observePosts } from "../drops/observe.js";
import { isUri } from "../drops/request.js";
import type { Unlinked } from "../reactions/adopt.sql.js";
import { adopt, type Linkable } from "../reactions/targets.js";
import type { LinkDeps } from "./deps.js";
import { linkWaiting } from "./reaction-links.js";

/**
 * A remote drop is stored first and linked afterwards: what it replies to counts it, and it counts what replies to it.
 * So of two drops that come at once at least the later one finds the other. The maintenance links drops of a process
 * that died, and those of an earlier version.
 */
export const LINKS_TASK = "links-of-remote-drops";

const REPLIES_AT_ONCE = 500;
/** A drop with more replies is linked in several rounds of the maintenance. */
const MAX_STEPS = 20;
const ROWS_AT_ONCE = 2_000;

/** Resolves to the number of drops, at most `limit`. */
export async function linkDrops(deps: LinkDeps, limit: number, uris?: readonly string[]): Promise<number> {
  return link(deps, await deps.store.links.unlinked(limit, uris));
}

/** Removes the rows that name deleted drops of an actor. Resolves to their number. */
export async function unlinkDropsOf(deps: LinkDeps, actorUri: string, limit: number): Promise<number> {
  return link(deps, await deps.store.links.unlinkedOf(actorUri, limit));
}

/** The maintenance goes on after a failure: the drop itself is stored, or deleted. */
export async function linkNow(deps: LinkDeps, uri: string): Promise<void> {
  await linkDrops(deps, 1, [uri]).catch(() => observePosts.maintenanceFailed(LINKS_TASK));
}

async function link(deps: LinkDeps, unlinked: readonly Unlinked[]): Promise<number> {
  const drops = await adopt(deps, unlinked);
  const linked = await linkLiving(
    deps,
    drops.filter(({ deleted }) => !deleted),
  );
  const dead = drops.filter(({ deleted }) => deleted);
  if (dead.length > 0) await unlinkDead(deps, dead);
  await deps.store.links.done([...linked, ...dead]);
  return unlinked.length;
}

/** Returns the drops all of whose replies and reactions are counted now. */
async function linkLiving(deps: LinkDeps, drops: readonly Linkable[]): Promise<Linkable[]> {
  if (drops.length === 0) return [];
  const { links } = deps.store;
  const keys = await links.keys(drops.flatMap(({ reply_to }) => (reply_to && isUri(reply_to) ? reply_to : [])));
  for (const { uri, reply_to, visibility } of drops) {
    const key = reply_to === null ? undefined : isUri(reply_to) ? keys.get(reply_to) : reply_to;
    // Only public and unlisted replies count.
    if (reply_to !== null && key !== undefined && visibility <= 2) await count(deps, { id: reply_to, key }, [uri]);
  }
  const parents = new Set(await links.parentsAmong(drops.map(({ uri }) => uri)));
  const done: Linkable[] = [];
  for (const drop of drops) {
    const parent = { id: drop.uri, key: drop.drop_id };
    if (!parents.has(drop.uri) || ((await countReplies(deps, parent)) && (await linkWaiting(deps, drop.uri))))
      done.push(drop);
  }
  return done;
}

interface Parent {
  readonly id: string;
  readonly key: string;
}

async function count({ store, wakeRelay }: LinkDeps, parent: Parent, replies: readonly string[]): Promise<void> {
  // A document may name a drop of this server that never existed, with an id of any month.
  if (isUri(parent.id)) await store.links.ensureMonth(parent.key);
  const drafts = replies.map((reply) => ({
    reply,
    event: engagementChanged({ drop_id: parent.key, kind: "reply", actor_id: reply }),
  }));
  if ((await store.links.attach(parent, drafts)) > 0) wakeRelay?.("reactions");
}

/** Resolves to false if more are left. */
async function countReplies(deps: LinkDeps, parent: Parent): Promise<boolean> {
  for (let step = 0; step < MAX_STEPS; step++) {
    const replies = await deps.store.links.uncounted(parent, REPLIES_AT_ONCE);
    const groups = [replies.filter(isUri), replies.filter((reply) => !isUri(reply))];
    for (const group of groups) if (group.length > 0) await count(deps, parent, group);
    if (replies.length < REPLIES_AT_ONCE) return true;
  }
  return false;
}

async function unlinkDead({ store, wakeRelay }: LinkDeps, drops: readonly Linkable[]): Promise<void> {
  const { links, reactions, reposts, remoteReactions } = store;
  const parents = await links.keys(drops.flatMap(({ reply_to }) => (reply_to && isUri(reply_to) ? reply_to : [])));
  const replies = drops.flatMap(({ uri, reply_to }) => {
    const drop_id = reply_to === null ? undefined : isUri(reply_to) ? parents.get(reply_to) : reply_to;
    if (drop_id === undefined) return [];
    const reaction = { drop_id, kind: "reply", actor_id: uri } as const;
    return { ...reaction, event: engagementChanged(reaction) };
  });
  if (replies.length > 0) {
    await links.detach(replies);
    wakeRelay?.("reactions");
  }
  const keys = drops.map(({ drop_id }) => drop_id);
  while ((await reposts.removeOf(keys, ROWS_AT_ONCE)) > 0) wakeRelay?.("posts");
  while ((await reactions.removeOf(keys, ROWS_AT_ONCE)) === ROWS_AT_ONCE);
  // The last statement waited for transactions that counted these reactions: no counts come after it.
  await links.forgetCounts(keys);
  const uris = drops.map(({ uri }) => uri);
  while ((await remoteReactions.removeOfObjects(uris, ROWS_AT_ONCE)) > 0);
}
