import type { HeldDrop } from "../../contracts/timelines.js";
import { CLOCK_SKEW_MS } from "../../contracts/times.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import { type Behind, type EdgeChange, edgeName } from "../../state/index.js";
import type { UpstreamView } from "../upstreams.grpc.js";
import { type Compared, lostByRestore, unlessUnanswered } from "./lost-by-restore.js";
import type { Samples } from "./samples.js";

interface WatchDeps {
  readonly samples: Samples;
  readonly upstreams: Pick<UpstreamView, "findDrop" | "follows" | "listDropIds">;
  /** Losses: the process in charge compares, while nothing else is lost, and sets the mark. */
  readonly losses: { readonly inCharge: boolean; readonly isLost: boolean; behind: Behind | undefined };
  readonly settleMs: number;
  readonly log: Logger;
}

const MOST_EVERY_MS = 15 * SECOND;
const AGAIN_MS = 3 * SECOND;
const CALLS_AT_ONCE = 4;
const EXAMPLES = 10;
/** Maximum number of listed drops; a comparison with more says nothing about local. */
const MOST_LISTED = 5_000;

/**
 * Compares the drops and edges of the log, and the drops of local, with the upstreams. The interval is shorter than the
 * settling time: after a restore, a comparison then comes before newer drops are in the sample. Drops and edges that
 * two comparisons in a row do not know count.
 */
export function startRestoreWatch(deps: WatchDeps): Loop {
  const everyMs = Math.max(Math.min(deps.settleMs / 2, MOST_EVERY_MS), SECOND);
  let suspects: ReadonlySet<string> = new Set();
  return startLoop({
    everyMs,
    work: async () => {
      if (!deps.losses.inCharge || deps.losses.isLost) return SECOND;
      const finding = await look(deps, suspects);
      const isNew = [...finding.unknown].some((name) => !suspects.has(name));
      suspects = finding.unknown;
      await setMark(deps, finding);
      return isNew ? Math.min(everyMs, AGAIN_MS) : everyMs;
    },
    failed: (error) => deps.log.debug({ error: oneLine(error) }, "the upstreams were not compared with the log"),
    closeMs: SECOND,
  });
}

interface Finding extends Behind {
  readonly unknown: ReadonlySet<string>;
}

async function look(deps: WatchDeps, suspects: ReadonlySet<string>): Promise<Finding> {
  const { samples } = deps;
  const unknown = new Set<string>();
  const judged = <Item>(item: Item, name: string, known: boolean): Compared<Item> => {
    if (!known) unknown.add(name);
    return { item, known: known || !suspects.has(name) };
  };
  const drops = await mapLimited(await samples.drops(), CALLS_AT_ONCE, async (item) =>
    judged(item, item.drop, await isKnown(deps, item)),
  );
  const edges = await mapLimited(await samples.edges(), CALLS_AT_ONCE, async (item) =>
    judged(item, edgeName(item), await isAsHeld(deps, item)),
  );
  const local = await samples.local();
  const since = (local[0]?.createdAt ?? 0) - CLOCK_SKEW_MS;
  const listed = local.length === 0 ? undefined : await deps.upstreams.listDropIds({ since, until: 0 }, MOST_LISTED);
  const shown = listed ? local.map((item) => judged(item, item.drop, listed.has(item.drop))) : [];
  const [lost, ofLocal] = [drops, shown].map((sample) => lostByRestore(sample, ({ author }) => author));
  const lostEdges = lostByRestore(edges, ({ follower }) => follower);
  return { drops: (lost?.length ? lost : ofLocal) ?? [], edges: lostEdges, unknown };
}

/** Resolves to true for a drop or an edge if the question fails for one user alone. */
const isKnown = async ({ upstreams }: WatchDeps, item: HeldDrop): Promise<boolean> =>
  (await unlessUnanswered(async () => (await upstreams.findDrop(item)) !== undefined)) ?? true;

const isAsHeld = async ({ upstreams }: WatchDeps, { follower, following, follows }: EdgeChange): Promise<boolean> =>
  ((await unlessUnanswered(() => upstreams.follows(follower, following))) ?? follows) === follows;

async function setMark(deps: WatchDeps, { drops, edges }: Finding): Promise<void> {
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
  const kept = await deps.samples.stillHeld(drops);
  // Drops of local have no authors to ask about.
  if (kept.some(({ author }) => author === undefined)) return false;
  const known = await Promise.all([
    ...kept.map((drop) => isKnown(deps, drop)),
    ...(await deps.samples.inForce(edges)).map((edge) => isAsHeld(deps, edge)),
  ]);
  return !known.includes(false);
}
