import { CLOCK_SKEW_MS } from "../../contracts/times.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { codeOf, oneLine, subjectOf } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import type { EdgeChange } from "../../records/fences.js";
import type { Follows } from "./edges.js";
import { type HeldDrop, type Judged, type KnowsDrop, type ListDropIds, lostByRestore } from "./judge.js";

/** Pages are degraded by this mark: it has some of the drops and edges that the upstreams do not know any more. */
export interface Behind {
  readonly drops: readonly HeldDrop[];
  readonly edges: readonly EdgeChange[];
}

export interface Samples {
  /** The newest settled drops of the log and some older ones, in the order of admission, without deleted ones. */
  readonly drops: () => Promise<readonly HeldDrop[]>;
  /** The edges are the newest follows of the log, each with the version in force. */
  readonly edges: () => Promise<readonly EdgeChange[]>;
  /** The newest drops of local, oldest first; they may be in no log any more. */
  readonly local: () => Promise<readonly HeldDrop[]>;
  /** Returns the drops of the sample that are neither deleted nor gone from where they were found. */
  readonly stillHeld: (drops: readonly HeldDrop[]) => Promise<readonly HeldDrop[]>;
  readonly inForce: (edges: readonly EdgeChange[]) => Promise<readonly EdgeChange[]>;
}

interface WatchDeps {
  readonly samples: Samples;
  /** This is asked about drops that name an author. */
  readonly isKnown: KnowsDrop;
  readonly follows: Follows;
  readonly listDropIds: ListDropIds;
  /** Returns true in the one process that looks and writes the mark. */
  readonly inCharge: () => boolean;
  readonly marked: () => Behind | undefined;
  readonly mark: (behind: Behind | undefined) => void;
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
      if (!deps.inCharge()) return SECOND;
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
    judged(held, held.drop, await knownOrSilent(() => deps.isKnown(held))),
  );
  const edges = await mapLimited(await samples.edges(), CALLS_AT_ONCE, async (held) =>
    judged(held, JSON.stringify([held.follower, held.following]), await isAsHeld(deps, held)),
  );
  const local = await samples.local();
  const since = (local[0]?.createdAt ?? 0) - CLOCK_SKEW_MS;
  const listed = local.length === 0 ? undefined : await deps.listDropIds({ since, until: 0 }, MOST_LISTED);
  const shown = listed ? local.map((held) => judged(held, held.drop, listed.has(held.drop))) : [];
  const [lost, ofLocal] = [drops, shown].map((sample) => lostByRestore(sample, ({ author }) => author));
  const lostEdges = lostByRestore(edges, ({ follower }) => follower);
  return { drops: (lost?.length ? lost : ofLocal) ?? [], edges: lostEdges, unknown };
}

const isAsHeld = (deps: WatchDeps, { follower, following, follows }: EdgeChange): Promise<boolean> =>
  knownOrSilent(async () => (await deps.follows(follower, following)) === follows);

/** An event counts as known where the failure of one user leaves it unanswered. */
async function knownOrSilent(ask: () => Promise<boolean>): Promise<boolean> {
  try {
    return await ask();
  } catch (error) {
    if (codeOf(error) === "unavailable" && subjectOf(error) === undefined) throw error;
    return true;
  }
}

async function judge(deps: WatchDeps, { drops, edges }: Found): Promise<void> {
  const { log, marked, mark } = deps;
  const before = marked();
  if (drops.length + edges.length > 0) {
    if (before) return;
    mark({ drops: drops.slice(0, EXAMPLES), edges: edges.slice(0, EXAMPLES) });
    const since =
      drops.length > 0 ? new Date(Math.min(...drops.map(({ createdAt }) => createdAt))).toISOString() : null;
    log.error(
      { drops: drops.length, edges: edges.length, since },
      "the upstreams do not know drops or follows that the log or local holds, as after a restore of their database: pages are degraded; run `avion-timeline recover --database-is-the-truth`",
    );
    return;
  }
  if (!before || !(await isOver(deps, before))) return;
  mark(undefined);
  log.warn({}, "the upstreams know the drops and follows of the log and local again, or these were undone");
}

async function isOver({ samples, ...deps }: WatchDeps, { drops, edges }: Behind): Promise<boolean> {
  const held = await samples.stillHeld(drops);
  // Local names no authors to ask about.
  if (held.some(({ author }) => author === undefined)) return false;
  const known = await Promise.all([
    ...held.map((one) => knownOrSilent(() => deps.isKnown(one))),
    ...(await samples.inForce(edges)).map((edge) => isAsHeld({ samples, ...deps }, edge)),
  ]);
  return !known.includes(false);
}
