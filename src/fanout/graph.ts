import type { EdgeEvent, EventName } from "../contracts/events.js";
import { type Fences, writeUnlessDeleted } from "../contracts/fences.js";
import { belongsHome } from "../contracts/timelines.js";
import { isTooFarAhead } from "../contracts/times.js";
import type { Drop } from "../gen/avion/posts.js";
import { chunked } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import type { ReadAuthorDrops } from "./sources.grpc.js";
import { audienceOf, type TimelineWriter } from "./store.redis.js";

/** `admittedAt` in ms since the epoch. */
export type EdgeApplied = (event: EventName, admittedAt: number) => void;

interface GraphDeps {
  readonly fences: Fences;
  readonly writer: TimelineWriter;
  readonly readAuthorDrops: ReadAuthorDrops;
  readonly maxEntries: number;
  readonly applied: EdgeApplied;
}

const DROPS_A_CALL = 200;
const MAX_ROUNDS = 10;

/**
 * Makes the function that applies a changed edge: it adds an author's drops to a follower's home timeline, or removes
 * them. The newest version of the edge wins in any order of events: after each step the edge is read again, and the
 * step repeated if it has changed.
 *
 * Both end by removing tombstoned drops from the home: a deletion that read the followers while this edge was changing
 * may have missed it (see `apply.ts`).
 */
export function createApplyEdge(deps: GraphDeps): (event: EdgeEvent, admittedAt: number) => Promise<void> {
  return async (event, admittedAt) => {
    const { follower_id: follower, following_id: following, version } = event.payload;
    // A user's own drops are in their home anyway.
    if (follower === following) return;
    const change = { follower, following, version, follows: event.name === "user_followed" };
    let edge = await deps.fences.changeEdge(change);
    for (let round = 0; round < MAX_ROUNDS; round++) {
      await deps.fences.renewGeneration(following);
      const floor = await deps.writer.interruptRebuild(follower);
      if (edge.follows) await backfill(deps, { follower, following, floor: floor ?? 0 });
      else await removeAll(deps, { follower, following });
      await removeTombstoned(deps, follower);
      const now = await deps.fences.changeEdge(change);
      if (now.version === edge.version && now.follows === edge.follows) return deps.applied(event.name, admittedAt);
      edge = now;
    }
    throw new AppError("failed", "the edge changes faster than it can be applied");
  };
}

/** Adds one drop more than a timeline holds, so that trimming raises the floor where the list is cut off. */
async function backfill(deps: GraphDeps, to: { follower: string; following: string; floor: number }): Promise<void> {
  const { writer, fences, maxEntries } = deps;
  const audience = audienceOf([to.follower]);
  let count = 0;
  for await (const page of dropsDownTo(deps.readAuthorDrops, to.following, to.floor)) {
    const now = Date.now();
    const entries = page
      .filter((drop) => belongsHome(drop, to.follower) && !isTooFarAhead(drop.created_at, now))
      .map((drop) => ({ drop: drop.drop_id, score: drop.created_at }));
    for (const part of chunked(entries.slice(0, maxEntries + 1 - count), DROPS_A_CALL)) {
      const drops = part.map(({ drop }) => drop);
      await writeUnlessDeleted(drops, {
        write: () => writer.addHome(audience, part),
        tombstonedAmong: fences.tombstonedAmong,
        remove: (deleted) => writer.removeHome(audience, deleted),
      });
    }
    count += entries.length;
    if (count > maxEntries) return;
  }
}

async function removeAll(deps: GraphDeps, from: { follower: string; following: string }): Promise<void> {
  const { writer } = deps;
  const held = await writer.membersOf(from.follower);
  if (held.drops.length === 0) return;
  const inKey = new Set(held.drops);
  const audience = audienceOf([from.follower]);
  for await (const page of dropsDownTo(deps.readAuthorDrops, from.following, held.oldest - 1)) {
    const gone = page.map(({ drop_id }) => drop_id).filter((drop) => inKey.has(drop));
    if (gone.length > 0) await writer.removeHome(audience, gone);
  }
}

async function removeTombstoned({ writer, fences }: GraphDeps, follower: string): Promise<void> {
  const deleted = await fences.tombstonedAmong((await writer.membersOf(follower)).drops);
  for (const part of chunked([...deleted], DROPS_A_CALL)) await writer.removeHome(audienceOf([follower]), part);
}

async function* dropsDownTo(read: ReadAuthorDrops, author: string, floor: number): AsyncGenerator<readonly Drop[]> {
  let below: { before: number; drop: string } | undefined;
  for (;;) {
    const page = await read(author, below);
    const above = page.filter((drop) => drop.created_at > floor || floor <= 0);
    if (above.length > 0) yield above;
    const last = page.at(-1);
    if (last === undefined || above.length < page.length) return;
    below = { before: last.created_at, drop: last.drop_id };
  }
}
