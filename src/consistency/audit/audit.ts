import { oneLine } from "../../kernel/errors.js";
import { paced } from "../../kernel/paced.js";
import { MINUTE, SECOND } from "../../kernel/time.js";
import { compare, confirmed, type Difference } from "./compare.js";
import type { AuditDeps, TimelineKind } from "./ports.js";
import { settled } from "./settled.js";

/** A timeline that is not as it should be. A home is named by its user, the others by themselves. */
export interface Differing {
  readonly name: string;
  readonly differences: readonly Difference[];
}

/** A timeline that could not be read or rebuilt. */
export interface Failed {
  readonly name: string;
  readonly error: string;
}

/** What an audit found. */
export interface Report {
  /** Complete timelines that were compared. */
  readonly judged: number;
  /** Timelines that do not say that they are complete: their next read rebuilds them. */
  readonly incomplete: number;
  /** Timelines with a difference, where events waited for so long that it may be those. */
  readonly undecided: readonly string[];
  readonly failed: readonly Failed[];
  readonly differing: readonly Differing[];
  /** How long the oldest event that is not applied had been waiting at the beginning, in ms. */
  readonly lagMs: number;
  /** Rebuilt timelines, where that was asked for; those of them that differ still. */
  readonly repaired: readonly string[];
  readonly remaining: readonly Differing[];
  /** Timelines whose rebuild failed. */
  readonly unrepaired: readonly Failed[];
}

/** What was audited together. */
export type Reports = Readonly<Partial<Record<TimelineKind, Report>>>;

/** How an audit is done. */
export interface AuditOptions {
  /** Rebuilds what differs, and looks again. */
  readonly fix?: boolean | undefined;
  readonly stopping?: AbortSignal | undefined;
  /** Told how many timelines were looked at. */
  readonly progress?: (looked: number) => void;
}

const AT_ONCE = 4;
/** One look at one timeline may take this long, in ms. */
const LOOK_MS = 25 * SECOND;
/** Between two looks at least this long, in ms; less where things settle sooner. */
const SECOND_LOOK_MS = 5 * SECOND;
/** What was on its way at the first look is waited for this long, in ms. */
const PATIENCE_MS = MINUTE;
/** The upstreams are asked for more than a timeline holds, since it may lack some and have too many of others. */
const SPARE = 100;

/**
 * Compares timelines of one kind with what they should hold. A difference counts
 * only where a second look finds it too, taken once everything that had been
 * admitted by the first was applied.
 */
export async function audit(deps: AuditDeps, names: readonly string[], options: AuditOptions = {}): Promise<Report> {
  const { fix = false, stopping } = options;
  const lagMs = Math.max(0, Date.now() - (await deps.readBacklogStart()));
  const found = await twice(deps, names, options);
  const repaired: string[] = [];
  const unrepaired: Failed[] = [];
  if (fix) {
    await paced(found.differing, { atOnce: AT_ONCE, stopping }, async ({ name }) => {
      try {
        await deps.rebuild(name);
        repaired.push(name);
      } catch (error) {
        unrepaired.push({ name, error: oneLine(error) });
      }
    });
  }
  const again = repaired.length > 0 ? await twice(deps, repaired, { stopping }) : undefined;
  return {
    ...found,
    failed: [...found.failed, ...(again?.failed ?? [])],
    lagMs,
    repaired,
    remaining: again?.differing ?? [],
    unrepaired,
  };
}

interface Found {
  judged: number;
  incomplete: number;
  readonly undecided: string[];
  readonly failed: Failed[];
  differing: Differing[];
}

async function twice(deps: AuditDeps, names: readonly string[], options: AuditOptions): Promise<Found> {
  const first = await once(deps, names, options);
  if (first.differing.length === 0) return first;
  const suspects = first.differing;
  first.differing = [];
  const since = Date.now() + Math.min(deps.settleMs, SECOND_LOOK_MS);
  // By then what the upstreams showed at the first look is published, admitted and applied.
  if (!(await settled(deps.readBacklogStart, { since, patienceMs: PATIENCE_MS, stopping: options.stopping }))) {
    first.undecided.push(...suspects.map(({ name }) => name));
    return first;
  }
  const { stopping } = options;
  const second = await once(
    deps,
    suspects.map(({ name }) => name),
    { stopping },
  );
  const before = new Map(suspects.map(({ name, differences }) => [name, differences]));
  first.failed.push(...second.failed);
  first.differing = second.differing
    .map(({ name, differences }) => ({ name, differences: confirmed(before.get(name) ?? [], differences) }))
    .filter(({ differences }) => differences.length > 0);
  return first;
}

async function once(deps: AuditDeps, names: readonly string[], options: AuditOptions): Promise<Found> {
  const found: Found = { judged: 0, incomplete: 0, undecided: [], failed: [], differing: [] };
  let looked = 0;
  await paced(names, { atOnce: AT_ONCE, stopping: options.stopping }, async (name) => {
    try {
      const differences = await look(deps, name);
      if (differences === undefined) found.incomplete++;
      else found.judged++;
      if (differences && differences.length > 0) found.differing.push({ name, differences });
    } catch (error) {
      found.failed.push({ name, error: oneLine(error) });
    }
    options.progress?.(++looked);
  });
  return found;
}

/** Undefined where the timeline does not say that it is complete. */
async function look(deps: AuditDeps, name: string): Promise<readonly Difference[] | undefined> {
  const { maxEntries, settleMs } = deps;
  const stored = await deps.readStored(name);
  if (!stored) return undefined;
  const now = Date.now();
  const asked = { floor: stored.floor, count: maxEntries + SPARE, deadline: now + LOOK_MS };
  const differences = compare(stored, await deps.readExpected(name, asked), { now, settleMs });
  if (differences.length === 0) return differences;
  // Whatever a deletion has missed, or is gone for its age, reads filter.
  const dead = await deps.tombstonedAmong(differences.map(({ drop }) => drop));
  const since = deps.retentionStart();
  return differences.filter(({ drop, score, expected }) => !dead.has(drop) && (score ?? expected ?? 0) >= since);
}
