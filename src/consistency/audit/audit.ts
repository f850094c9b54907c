import { isTooFarAhead } from "../../contracts/times.js";
import { paced, type Throttle } from "../../kernel/concurrency.js";
import { oneLine } from "../../kernel/errors.js";
import { MINUTE, pause, SECOND, sharedNow } from "../../kernel/time.js";
import type { Contents } from "../../state/entries/audited.redis.js";
import type { WaitingEvent } from "../../state/messages/waiting.redis.js";
import { HANDLED_MS } from "../looks.js";

export const TIMELINES = ["home", "local", "global"] as const;
export type TimelineKind = (typeof TIMELINES)[number];

/** A timeline is a home, named by its user, or local or global, named by itself. */
export interface TimelineName {
  readonly kind: TimelineKind;
  readonly name: string;
}

/** Events admitted from `start` on (ms since the epoch) may not have been applied yet, and neither have those that wait. */
export type ReadUnapplied = () => Promise<{ readonly start: number; readonly waiting: readonly WaitingEvent[] }>;

export interface AuditDeps {
  /** Resolves to undefined for a timeline that is not complete: its next read rebuilds it. */
  readonly readStored: (name: string) => Promise<Contents | undefined>;
  /**
   * Resolves to the newest `count` drops created after `floor`, as the upstreams or the log say. Times are in ms since
   * the epoch.
   */
  readonly readExpected: (name: string, of: { floor: number; count: number; deadline: number }) => Promise<Contents>;
  /** Reads hide drops older than this, in ms since the epoch. */
  readonly retentionStart: () => number;
  readonly tombstonedAmong: (drops: readonly string[]) => Promise<ReadonlySet<string>>;
  readonly readUnapplied: ReadUnapplied;
  readonly rebuild: (name: string) => Promise<void>;
  /** Resolves to false where the upstreams have nothing of this user. */
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

interface Found {
  judged: number;
  incomplete: number;
  /** These users were named, but the upstreams have nothing of them. */
  readonly unknown: string[];
  /** The differences of these timelines may be events which waited too long. */
  undecided: string[];
  failed: Failed[];
  differing: Differing[];
}

export interface Report extends Readonly<Found> {
  /** The age is that of the oldest event that was not applied at the beginning, in ms. */
  readonly lagMs: number;
  readonly repaired: readonly string[];
  /** Times from finding that a timeline differs until it was right again, ms. */
  readonly repairMs: readonly number[];
  readonly remaining: readonly Differing[];
  readonly unrepaired: readonly Failed[];
}

export type Reports = Readonly<Partial<Record<TimelineKind, Report>>>;

export interface AuditOptions {
  /** The users were named by hand: one may be misspelt. */
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
/** A timeline is compared again after so many ms, unless events settle sooner. */
const SECOND_LOOK_MS = 5 * SECOND;
/** The first comparison waits at most so many ms for events under way. */
const MAX_WAIT_MS = MINUTE;
/** While events wait for a single user, it takes longer to learn that the others are applied. */
const MAX_WAIT_FOR_OTHERS_MS = MAX_WAIT_MS + HANDLED_MS;
const POLL_MS = SECOND / 4;
/** So much is read beyond the size of a timeline: it may lack some drops and hold others too many. */
const SPARE = 100;

/** A difference counts only if a second comparison finds it too, once every event admitted before is applied. */
export async function audit(deps: AuditDeps, names: readonly string[], options: AuditOptions = {}): Promise<Report> {
  const { fix = false, stopping } = options;
  const lagMs = Math.max(0, sharedNow() - (await deps.readUnapplied()).start);
  const foundAt = new Map<string, number>();
  const found = await twice(deps, names, { ...options, differs: (name) => foundAt.set(name, performance.now()) });
  const repaired: string[] = [];
  const tookMs = new Map<string, number>();
  const unrepaired: Failed[] = [];
  if (fix) {
    await paced(found.differing, { atOnce: AT_ONCE, stopping }, async ({ name }) => {
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
  // The next audit looks at changes since then.
  const remaining = stillDiffering(found.differing, again?.differing ?? []);
  for (const { name } of remaining) tookMs.delete(name);
  return {
    ...found,
    undecided: [...found.undecided, ...(again?.undecided ?? [])],
    failed: [...found.failed, ...(again?.failed ?? [])],
    lagMs,
    repaired,
    repairMs: [...tookMs.values()],
    remaining,
    unrepaired,
  };
}

async function twice(deps: AuditDeps, names: readonly string[], options: AuditOptions): Promise<Found> {
  const first = await once(deps, names, options);
  if (first.differing.length === 0) return first;
  const differing = first.differing;
  first.differing = [];
  const since = sharedNow() + Math.min(deps.settleMs, SECOND_LOOK_MS);
  // The changes that the first comparison saw are published, admitted and applied by then.
  const waiting = await untilApplied(deps.readUnapplied, since, options.stopping, MAX_WAIT_FOR_OTHERS_MS);
  if (!waiting) {
    first.undecided = first.undecided.concat(namesOf(differing));
    return first;
  }
  const second = await once(deps, namesOf(differing), { stopping: options.stopping });
  first.failed = first.failed.concat(second.failed);
  for (const one of stillDiffering(differing, second.differing)) {
    const differences = one.differences.filter(({ drop }) => !isOpen(waiting, one.name, drop));
    if (differences.length > 0) first.differing.push({ ...one, differences });
    else first.undecided.push(one.name);
  }
  return first;
}

const namesOf = (differing: readonly Differing[]): string[] => differing.map(({ name }) => name);

/** An event that waits may bring the drop, take it away, or change whom the user follows. */
export const isOpen = (waiting: readonly WaitingEvent[], user: string, drop: string): boolean =>
  waiting.some((one) => one.drop === drop || (one.affected?.kind === "reader" && one.affected.user === user));

function stillDiffering(before: readonly Differing[], now: readonly Differing[]): Differing[] {
  const known = new Map(before.map(({ name, differences }) => [name, differences]));
  return now
    .map(({ name, differences }) => ({ name, differences: confirmed(known.get(name) ?? [], differences) }))
    .filter(({ differences }) => differences.length > 0);
}

async function once(deps: AuditDeps, names: readonly string[], options: AuditOptions): Promise<Found> {
  const found: Found = { judged: 0, incomplete: 0, unknown: [], undecided: [], failed: [], differing: [] };
  let compared = 0;
  const { stopping, throttle } = options;
  await paced(names, { atOnce: AT_ONCE, throttle, stopping }, async (name) => {
    try {
      const differences = await look(deps, name);
      const differs = differences !== undefined && differences.length > 0;
      if (options.named && !differs && !(await deps.isKnown(name))) found.unknown.push(name);
      else if (differences === undefined) found.incomplete++;
      else found.judged++;
      if (differs) {
        options.differs?.(name);
        found.differing.push({ name, differences });
      }
    } catch (error) {
      found.failed.push({ name, error: oneLine(error) });
    }
    options.progress?.(++compared);
  });
  return found;
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
 * Waits until every event admitted before `since` is applied, or waits for a single user, and resolves with those.
 * Resolves to undefined after a minute, or once `stopping` aborts; while events wait, after `othersMs`.
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
  const held = new Map(stored.entries.map(({ drop, score }) => [drop, score]));
  const remoteFloor = Math.max(stored.remoteFloor ?? 0, expected.remoteFloor ?? 0);
  const leftOut = new Set(
    [...stored.entries, ...expected.entries]
      .filter((one) => one.remote && one.score <= remoteFloor)
      .map(({ drop }) => drop),
  );
  const wanted = new Map(expected.entries.map(({ drop, score }) => [drop, score]));
  const found: Difference[] = [];
  for (const [drop, time] of wanted) {
    const score = held.get(drop);
    if (score === time || !judged(time) || leftOut.has(drop)) continue;
    found.push({ kind: score === undefined ? "missing" : "wrong_score", drop, score, expected: time });
  }
  for (const [drop, score] of held) {
    if (!wanted.has(drop) && judged(score) && !leftOut.has(drop))
      found.push({ kind: "unexpected", drop, score, expected: undefined });
  }
  return found;
}

/** Returns the differences that are in both comparisons. */
export function confirmed(before: readonly Difference[], now: readonly Difference[]): Difference[] {
  const nameOf = ({ kind, drop }: Difference): string => `${kind} ${drop}`;
  const known = new Set(before.map(nameOf));
  return now.filter((difference) => known.has(nameOf(difference)));
}
