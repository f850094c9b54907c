import { isTooFarAhead } from "../../contracts/times.js";
import { paced, type Throttle } from "../../kernel/concurrency.js";
import { oneLine } from "../../kernel/errors.js";
import { MINUTE, pause, SECOND, sharedNow } from "../../kernel/time.js";
import type { Contents, WaitingEvent } from "../../state/index.js";
import { HANDLED_MS } from "../looks.js";

export const TIMELINES = ["home", "local", "global"] as const;
export type TimelineKind = (typeof TIMELINES)[number];

/** Name of a timeline: of a home its user, of local or global itself. */
export interface TimelineName {
  readonly kind: TimelineKind;
  readonly name: string;
}

/**
 * Reads the events that are not applied. Events admitted from `start` on (ms since the epoch) may not have been applied
 * yet; those of `waiting` wait for a single user.
 */
export type ReadUnapplied = () => Promise<{ readonly start: number; readonly waiting: readonly WaitingEvent[] }>;

export interface AuditDeps {
  /** Resolves to undefined for a timeline that is not complete: its next read rebuilds it. */
  readonly readStored: (name: string) => Promise<Contents | undefined>;
  /**
   * Resolves to the newest `count` drops created after `floor`, as the upstreams or the log list them. Times are in ms
   * since the epoch.
   */
  readonly readExpected: (name: string, range: { floor: number; count: number; deadline: number }) => Promise<Contents>;
  /** Reads hide drops older than this, in ms since the epoch. */
  readonly retentionStart: () => number;
  readonly tombstonedAmong: (drops: readonly string[]) => Promise<ReadonlySet<string>>;
  readonly readUnapplied: ReadUnapplied;
  readonly rebuild: (name: string) => Promise<void>;
  /** Resolves to false if the upstreams have nothing of this user. */
  readonly isKnown: (name: string) => Promise<boolean>;
  readonly maxEntries: number;
  /** Drops younger than this, in ms, are not compared. */
  readonly settleMs: number;
}

export interface Differing {
  readonly name: string;
  readonly differences: readonly Difference[];
}

export interface Failed {
  readonly name: string;
  readonly error: string;
}

interface Findings {
  judged: number;
  incomplete: number;
  /** Users who were named, but of whom the upstreams have nothing. */
  readonly unknown: string[];
  /** Timelines whose differences may be events that waited too long. */
  undecided: string[];
  failed: Failed[];
  differing: Differing[];
}

export interface Report extends Readonly<Findings> {
  /** Age of the oldest event that was not applied at the beginning, ms. */
  readonly lagMs: number;
  readonly repaired: readonly string[];
  /** Times from finding that a timeline differs until it was right again, ms. */
  readonly repairMs: readonly number[];
  readonly remaining: readonly Differing[];
  readonly unrepaired: readonly Failed[];
}

export type Reports = Readonly<Partial<Record<TimelineKind, Report>>>;

export interface AuditOptions {
  /** True if the users were named by hand: a name may be misspelt. */
  readonly named?: boolean;
  readonly fix?: boolean | undefined;
  readonly stopping?: AbortSignal | undefined;
  /** Delays each comparison. */
  readonly throttle?: Throttle | undefined;
  readonly progress?: (compared: number) => void;
  /** Callback: called for each timeline that differs in the first comparison. */
  readonly differs?: (name: string) => void;
}

const AT_ONCE = 4;
const LOOK_MS = 25 * SECOND;
/** Time until a timeline is compared again, ms, unless events settle sooner. */
const SECOND_LOOK_MS = 5 * SECOND;
/** Maximum time that the first comparison waits for events under way, ms. */
const MAX_WAIT_MS = MINUTE;
/** Maximum time while events wait for a single user, ms: it takes longer to learn that the others are applied. */
const MAX_WAIT_FOR_OTHERS_MS = MAX_WAIT_MS + HANDLED_MS;
const POLL_MS = SECOND / 4;
/** Number of entries read beyond the size of a timeline, which may lack some drops and hold too many others. */
const SPARE = 100;

/**
 * Audits timelines. A difference counts only if a second comparison confirms it, once every event admitted before is
 * applied.
 */
export async function audit(deps: AuditDeps, names: readonly string[], options: AuditOptions = {}): Promise<Report> {
  const { fix = false, stopping } = options;
  const lagMs = Math.max(0, sharedNow() - (await deps.readUnapplied()).start);
  const foundAt = new Map<string, number>();
  const findings = await twice(deps, names, { ...options, differs: (name) => foundAt.set(name, performance.now()) });
  const repaired: string[] = [];
  const tookMs = new Map<string, number>();
  const unrepaired: Failed[] = [];
  if (fix) {
    await paced(findings.differing, { atOnce: AT_ONCE, stopping }, async ({ name }) => {
      try {
        await deps.rebuild(name);
        repaired.push(name);
        tookMs.set(name, performance.now() - (foundAt.get(name) as number));
      } catch (error) {
        unrepaired.push({ name, error: oneLine(error) });
      }
    });
  }
  const again = repaired.length > 0 ? await twice(deps, repaired, { stopping }) : undefined;
  // The next audit compares changes since then.
  const remaining = stillDiffering(findings.differing, again?.differing ?? []);
  for (const { name } of remaining) tookMs.delete(name);
  return {
    ...findings,
    undecided: [...findings.undecided, ...(again?.undecided ?? [])],
    failed: [...findings.failed, ...(again?.failed ?? [])],
    lagMs,
    repaired,
    repairMs: [...tookMs.values()],
    remaining,
    unrepaired,
  };
}

async function twice(deps: AuditDeps, names: readonly string[], options: AuditOptions): Promise<Findings> {
  const first = await once(deps, names, options);
  if (first.differing.length === 0) return first;
  const differing = first.differing;
  first.differing = [];
  const since = sharedNow() + Math.min(deps.settleMs, SECOND_LOOK_MS);
  // By then, the changes that the first comparison saw are published, admitted and applied.
  const waiting = await untilApplied(deps.readUnapplied, since, options.stopping, MAX_WAIT_FOR_OTHERS_MS);
  if (!waiting) {
    first.undecided = first.undecided.concat(namesOf(differing));
    return first;
  }
  const second = await once(deps, namesOf(differing), { stopping: options.stopping });
  first.failed = first.failed.concat(second.failed);
  for (const timeline of stillDiffering(differing, second.differing)) {
    const differences = timeline.differences.filter(({ drop }) => !isOpen(waiting, timeline.name, drop));
    if (differences.length > 0) first.differing.push({ ...timeline, differences });
    else first.undecided.push(timeline.name);
  }
  return first;
}

const namesOf = (differing: readonly Differing[]): string[] => differing.map(({ name }) => name);

/** Returns true if an event that waits may add the drop, remove it, or change whom the user follows. */
export const isOpen = (waiting: readonly WaitingEvent[], user: string, drop: string): boolean =>
  waiting.some((event) => event.drop === drop || (event.affected?.kind === "reader" && event.affected.user === user));

function stillDiffering(before: readonly Differing[], now: readonly Differing[]): Differing[] {
  const known = new Map(before.map(({ name, differences }) => [name, differences]));
  return now
    .map(({ name, differences }) => ({ name, differences: confirmed(known.get(name) ?? [], differences) }))
    .filter(({ differences }) => differences.length > 0);
}

async function once(deps: AuditDeps, names: readonly string[], options: AuditOptions): Promise<Findings> {
  const findings: Findings = { judged: 0, incomplete: 0, unknown: [], undecided: [], failed: [], differing: [] };
  let compared = 0;
  const { stopping, throttle } = options;
  await paced(names, { atOnce: AT_ONCE, throttle, stopping }, async (name) => {
    try {
      const differences = await look(deps, name);
      const differs = differences !== undefined && differences.length > 0;
      if (options.named && !differs && !(await deps.isKnown(name))) findings.unknown.push(name);
      else if (differences === undefined) findings.incomplete++;
      else findings.judged++;
      if (differs) {
        options.differs?.(name);
        findings.differing.push({ name, differences });
      }
    } catch (error) {
      findings.failed.push({ name, error: oneLine(error) });
    }
    options.progress?.(++compared);
  });
  return findings;
}

async function look(deps: AuditDeps, name: string): Promise<readonly Difference[] | undefined> {
  const { maxEntries, settleMs } = deps;
  const stored = await deps.readStored(name);
  if (!stored) return undefined;
  const now = sharedNow();
  const asked = { floor: stored.floor, count: maxEntries + SPARE, deadline: now + LOOK_MS };
  const differences = compare(stored, await deps.readExpected(name, asked), { now, settleMs });
  if (differences.length === 0) return differences;
  // Reads hide deleted drops and those older than the retention.
  const tombstoned = await deps.tombstonedAmong(differences.map(({ drop }) => drop));
  const since = deps.retentionStart();
  return differences.filter(({ drop, score, expected }) => !tombstoned.has(drop) && (score ?? expected ?? 0) >= since);
}

/**
 * Waits until every event admitted before `since` is applied, or waits for a single user, and resolves to those that
 * wait. Resolves to undefined after a minute, or once `stopping` aborts; while events wait, after `othersMs`.
 */
export async function untilApplied(
  readUnapplied: ReadUnapplied,
  since: number,
  stopping: AbortSignal | undefined,
  othersMs = MAX_WAIT_MS,
): Promise<readonly WaitingEvent[] | undefined> {
  const began = sharedNow();
  for (;;) {
    const { start, waiting } = await readUnapplied();
    if (start >= since) return waiting;
    const mostMs = waiting.length > 0 ? othersMs : MAX_WAIT_MS;
    if (stopping?.aborted || sharedNow() > began + mostMs) return undefined;
    await pause(POLL_MS, stopping);
  }
}

export const KINDS = ["missing", "unexpected", "wrong_score"] as const;
export type Kind = (typeof KINDS)[number];

export interface Difference {
  readonly kind: Kind;
  readonly drop: string;
  readonly score: number | undefined;
  readonly expected: number | undefined;
}

/**
 * Compares drops above both floors, and remote drops above both floors of remote drops. Drops younger than the settling
 * time may be under way, and are left out.
 */
export function compare(
  stored: Contents,
  expected: Contents,
  { now, settleMs }: { readonly now: number; readonly settleMs: number },
): Difference[] {
  const floor = Math.max(stored.floor, expected.floor);
  const lowest = floor > 0 ? floor : Number.NEGATIVE_INFINITY;
  const judged = (score: number): boolean => score > lowest && (score <= now - settleMs || isTooFarAhead(score, now));
  const inStored = new Map(stored.entries.map(({ drop, score }) => [drop, score]));
  const remoteFloor = Math.max(stored.remoteFloor ?? 0, expected.remoteFloor ?? 0);
  const leftOut = new Set(
    [...stored.entries, ...expected.entries]
      .filter((entry) => entry.remote && entry.score <= remoteFloor)
      .map(({ drop }) => drop),
  );
  const wanted = new Map(expected.entries.map(({ drop, score }) => [drop, score]));
  const findings: Difference[] = [];
  for (const [drop, time] of wanted) {
    const score = inStored.get(drop);
    if (score === time || !judged(time) || leftOut.has(drop)) continue;
    findings.push({ kind: score === undefined ? "missing" : "wrong_score", drop, score, expected: time });
  }
  for (const [drop, score] of inStored) {
    if (!wanted.has(drop) && judged(score) && !leftOut.has(drop))
      findings.push({ kind: "unexpected", drop, score, expected: undefined });
  }
  return findings;
}

/** Returns the differences that are in both comparisons. */
export function confirmed(before: readonly Difference[], now: readonly Difference[]): Difference[] {
  const nameOf = ({ kind, drop }: Difference): string => `${kind} ${drop}`;
  const known = new Set(before.map(nameOf));
  return now.filter((difference) => known.has(nameOf(difference)));
}
