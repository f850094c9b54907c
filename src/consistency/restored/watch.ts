import { CLOCK_SKEW_MS } from "../../contracts/times.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { codeOf, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import { type HeldDrop, type KnowsDrop, type ListDropIds, lostByRestore } from "./judge.js";

/** The mark that pages are degraded by: some of the drops that the upstreams do not know any more. */
export interface Behind {
  /** Creation of the oldest one found, ms since the epoch. */
  readonly since: number;
  readonly drops: readonly HeldDrop[];
}

export interface Samples {
  /** The newest drops that are settled, and some older ones, in the order of admission; no deleted ones. */
  readonly logged: () => Promise<readonly HeldDrop[]>;
  /** The newest drops of local, oldest first; they may be in no log any more. */
  readonly local: () => Promise<readonly HeldDrop[]>;
  /** Those of the sample that are neither deleted nor gone from where they were found. */
  readonly stillHeld: (drops: readonly HeldDrop[]) => Promise<readonly HeldDrop[]>;
}

interface WatchDeps {
  readonly samples: Samples;
  /** Asked about drops that name an author. */
  readonly isKnown: KnowsDrop;
  readonly listDropIds: ListDropIds;
  /** One process looks: the one that writes the mark. */
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
 * Looks whether the upstreams know the drops that the log and local hold. More often than drops settle: a look after a
 * restore then comes before drops that are newer than it are in the sample. Drops count once two looks in a row find
 * them unknown.
 */
export function startRestoreWatch(deps: WatchDeps): Loop {
  const everyMs = Math.max(Math.min(deps.settleMs / 2, MOST_EVERY_MS), SECOND);
  let suspects: ReadonlySet<string> = new Set();
  return startLoop({
    everyMs,
    work: async () => {
      if (!deps.inCharge()) return SECOND;
      const found = await look(deps, suspects);
      const isNew = found.unknown.size > 0 && [...found.unknown].some((drop) => !suspects.has(drop));
      suspects = found.unknown;
      await judge(deps, found.lost);
      return isNew ? Math.min(everyMs, AGAIN_MS) : everyMs;
    },
    failed: (error) => deps.log.debug({ error: oneLine(error) }, "the upstreams were not compared with the log"),
    closeMs: SECOND,
  });
}

interface Found {
  readonly lost: readonly HeldDrop[];
  readonly unknown: ReadonlySet<string>;
}

async function look(deps: WatchDeps, suspects: ReadonlySet<string>): Promise<Found> {
  const unknown = new Set<string>();
  const judged = (held: HeldDrop, known: boolean) => {
    if (!known) unknown.add(held.drop);
    return { held, known: known || !suspects.has(held.drop) };
  };
  const logged = await mapLimited(await deps.samples.logged(), CALLS_AT_ONCE, async (held) =>
    judged(held, await isKnown(deps, held)),
  );
  const local = await deps.samples.local();
  const since = (local[0]?.createdAt ?? 0) - CLOCK_SKEW_MS;
  const listed = local.length === 0 ? undefined : await deps.listDropIds({ since, until: 0 }, MOST_LISTED);
  const shown = listed ? local.map((held) => judged(held, listed.has(held.drop))) : [];
  const lost = lostByRestore(logged);
  return { lost: lost.length > 0 ? lost : lostByRestore(shown), unknown };
}

/** A drop of an author who cannot be asked about counts as known. */
async function isKnown(deps: WatchDeps, held: HeldDrop): Promise<boolean> {
  try {
    return await deps.isKnown(held);
  } catch (error) {
    if (codeOf(error) === "unavailable") throw error;
    return true;
  }
}

async function judge(deps: WatchDeps, lost: readonly HeldDrop[]): Promise<void> {
  const { log, marked, mark } = deps;
  const before = marked();
  if (lost.length > 0) {
    if (before) return;
    const since = Math.min(...lost.map(({ createdAt }) => createdAt));
    mark({ since, drops: lost.slice(0, EXAMPLES) });
    log.error(
      { since, drops: lost.length },
      "the upstreams do not know drops that the log or local holds, as after a restore of their database: pages are degraded; run `avion-timeline recover --database-is-the-truth`",
    );
    return;
  }
  if (!before) return;
  const held = await deps.samples.stillHeld(before.drops);
  // Local names no authors to ask about.
  if (held.some(({ author }) => author === undefined)) return;
  const known = await Promise.all(held.map((one) => isKnown(deps, one)));
  if (known.includes(false)) return;
  mark(undefined);
  log.warn({}, "the upstreams know again what the log and local hold, or it is deleted");
}
