import type { HeldDrop } from "../../contracts/timelines.js";
import { CLOCK_SKEW_MS } from "../../contracts/times.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import { type EdgeChange, edgeName } from "../../state/fences/types.js";
import type { Behind } from "../../state/servers/server-identity.redis.js";
import type { UpstreamView } from "../upstreams.grpc.js";
import { type Judged, lostByRestore, unlessUnanswered } from "./judge.js";
import type { Samples } from "./samples.redis.js";

interface WatchDeps {
  readonly samples: Samples;
  readonly upstreams: Pick<UpstreamView, "findDrop" | "follows" | "listDropIds">;
  /** The process in charge, while nothing else is lost, looks and sets the mark. */
  readonly losses: { readonly inCharge: boolean; readonly isLost: boolean; behind: Behind | undefined };
  readonly settleMs: number;
  readonly log: Logger;
}

const MOST_EVERY_MS = 15 * SECOND;
const AGAIN_MS = 3 * SECOND;
const CALLS_AT_ONCE = 4;
const EXAMPLES = 10;
/** A look that would list more says nothing about local. */
const MOST_LISTED = 5_000;

/**
 * Looks whether the upstreams know the drops and edges that the log holds, and the drops of local. More often than these
 * settle: a look after a restore then comes before newer ones are in the sample. What two looks in a row find unknown
 * counts.
 */
export function startRestoreWatch(deps: WatchDeps): Loop {
  const everyMs = Math.max(Math.min(deps.settleMs / 2, MOST_EVERY_MS), SECOND);
  let suspects: ReadonlySet<string> = new Set();
  return startLoop({
    everyMs,
    work: async () => {
      if (!deps.losses.inCharge || deps.losses.isLost) return SECOND;
      const found = await look(deps, suspects);
      const isNew = [...found.unknown].some((one) => !suspects.has(one));
      suspects = found.unknown;
      await judge(deps, found);
      return isNew ? Math.min(everyMs, AGAIN_MS) : everyMs;
    },
    failed: (error) => deps.log.debug({ error: oneLine(error) }, "the upstreams were not compared with the log"),
    closeMs: SECOND,
  });
}

interface Found extends Behind {
  readonly unknown: ReadonlySet<string>;
}

async function look(deps: WatchDeps, suspects: ReadonlySet<string>): Promise<Found> {
  const { samples } = deps;
  const unknown = new Set<string>();
  const judged = <Held>(held: Held, name: string, known: boolean): Judged<Held> => {
    if (!known) unknown.add(name);
    return { held, known: known || !suspects.has(name) };
  };
  const drops = await mapLimited(await samples.drops(), CALLS_AT_ONCE, async (held) =>
    judged(held, held.drop, await isKnown(deps, held)),
  );
  const edges = await mapLimited(await samples.edges(), CALLS_AT_ONCE, async (held) =>
    judged(held, edgeName(held), await isAsHeld(deps, held)),
  );
  const local = await samples.local();
  const since = (local[0]?.createdAt ?? 0) - CLOCK_SKEW_MS;
  const listed = local.length === 0 ? undefined : await deps.upstreams.listDropIds({ since, until: 0 }, MOST_LISTED);
  const shown = listed ? local.map((held) => judged(held, held.drop, listed.has(held.drop))) : [];
  const [lost, ofLocal] = [drops, shown].map((sample) => lostByRestore(sample, ({ author }) => author));
  const lostEdges = lostByRestore(edges, ({ follower }) => follower);
  return { drops: (lost?.length ? lost : ofLocal) ?? [], edges: lostEdges, unknown };
}

/** A drop or an edge counts as known where the failure of one user leaves the question unanswered. */
const isKnown = async ({ upstreams }: WatchDeps, held: HeldDrop): Promise<boolean> =>
  (await unlessUnanswered(async () => (await upstreams.findDrop(held)) !== undefined)) ?? true;

const isAsHeld = async ({ upstreams }: WatchDeps, { follower, following, follows }: EdgeChange): Promise<boolean> =>
  ((await unlessUnanswered(() => upstreams.follows(follower, following))) ?? follows) === follows;

async function judge(deps: WatchDeps, { drops, edges }: Found): Promise<void> {
  const { log, losses } = deps;
  const before = losses.behind;
  if (drops.length + edges.length > 0) {
    if (before) return;
    losses.behind = { drops: drops.slice(0, EXAMPLES), edges: edges.slice(0, EXAMPLES) };
    const since =
      drops.length > 0 ? new Date(Math.min(...drops.map(({ createdAt }) => createdAt))).toISOString() : null;
    log.error(
      { drops: drops.length, edges: edges.length, since },
      "the upstreams do not know drops or follows that the log or local holds, as after a restore of their database: pages are degraded; run `avion-timeline recover --database-is-the-truth`",
    );
    return;
  }
  if (!before || !(await isOver(deps, before))) return;
  losses.behind = undefined;
  log.warn({}, "the upstreams know the drops and follows of the log and local again, or these were undone");
}

async function isOver(deps: WatchDeps, { drops, edges }: Behind): Promise<boolean> {
  const held = await deps.samples.stillHeld(drops);
  // Local names no authors to ask about.
  if (held.some(({ author }) => author === undefined)) return false;
  const known = await Promise.all([
    ...held.map((one) => isKnown(deps, one)),
    ...(await deps.samples.inForce(edges)).map((edge) => isAsHeld(deps, edge)),
  ]);
  return !known.includes(false);
}
