import type { Affected } from "../../contracts/timelines.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { type Lease, renewing } from "../../kernel/lease.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { pause, SECOND } from "../../kernel/time.js";
import type {
  Backlog,
  Behind,
  IdentityRecord,
  LogState,
  ServerIdentity,
  SetAside,
  WaitingEvent,
} from "../../state/index.js";

/** Backlog without the events of `waiting`, which are in the queue only because a single user is unavailable. */
export interface Unapplied extends Backlog {
  readonly waiting: readonly WaitingEvent[];
}

export interface Loss {
  /** Events admitted before this time (ms since the epoch) are applied. */
  readonly since: number;
  /** Redis may have lost writes it had confirmed. */
  readonly redis: boolean;
  /** `DROPS` lacks events that it had stored: the upstreams must be asked what changed. */
  readonly log: boolean;
}

export interface Recovery {
  readonly lease: Lease;
  readonly readBacklog: () => Promise<Backlog>;
  readonly readUnapplied: () => Promise<Unapplied>;
  /** Gives the log the name of this Redis if it has none, as a new one. */
  readonly bound?: { readonly redis: string; readonly bind: (redis: string) => Promise<void> } | undefined;
  /**
   * Called if Redis has no record, as at a first start: starts a fill of the log if the upstreams have a history that
   * it lacks. `replaced`: this process knew another log. Rejects while the upstreams do not answer.
   */
  readonly beginFirstFill: (options: { readonly replaced: boolean }) => Promise<void>;
  /**
   * Time for which other processes may still write to the former server after this one has left it: their writes are
   * lost.
   */
  readonly leaveMs?: number;
  /** Applies what was lost again, or sets it aside. A recovery that rejects is begun anew. */
  readonly recover: (loss: Loss, stopping: AbortSignal) => Promise<Recovered>;
  readonly observe: (loss: Loss, events: number) => void;
}

export interface Recovered {
  readonly events: number;
  readonly setAside: readonly SetAside[];
}

interface DetectorDeps {
  readonly identity: ServerIdentity;
  readonly readLogState: () => Promise<LogState>;
  readonly log: Logger;
  readonly recovery?: Recovery | undefined;
}

const CHECK_MS = SECOND;
/** Interval of checks while data may be missing, so that pages are not degraded for longer than it is. */
const CHECK_LOST_MS = SECOND / 10;
const FIRST_CHECK_MS = 3 * SECOND;
/** Maximum time whose writes Redis may lose: a second between two syncs, or the lag of a replica. */
const FALLBACK_MS = 5 * SECOND;
const NAMED_USERS = 10;
const COVER_TIMEOUT_MS = 30 * SECOND;

/** Checks for losses. The process with the lease also records how far the log is applied, and recovers. */
export class LossDetector {
  /** Returns true from the time when data may be missing until it is applied again. */
  readonly maybeLost = (): boolean => this.#maybeLost || this.behind !== undefined;
  get isLost(): boolean {
    return this.#maybeLost;
  }
  /** Called when a connection was lost: data may be missing until the next check. */
  readonly suspect = (): void => {
    this.#maybeLost = true;
  };
  /** Users whose homes, or whose drops, may be incomplete until the log is applied up to the set-aside events. */
  readonly affected = (): readonly Affected[] => this.#setAside;
  #maybeLost = false;
  #setAside: readonly SetAside[] = [];
  /** True while this process writes the record. */
  inCharge = false;
  /** Set while the upstreams are older than the log, as the record says; the process in charge sets it. */
  behind: Behind | undefined;
  /** Resolves once nothing is lost, so that a process begins with whole pages; after some seconds in any case. */
  readonly checked: Promise<void>;
  #firstChecked = (): void => undefined;
  /** State of the log when nothing was lost. It outlives a record that is lost together with the log. */
  #known: LogState | undefined;
  /** Latest records. `at` is a time of performance.now(). */
  #seen: { readonly at: number; readonly from: number }[] = [];
  readonly #loop: Loop;

  constructor(private readonly deps: DetectorDeps) {
    const first = new Promise<void>((resolve) => {
      this.#firstChecked = resolve;
    });
    this.checked = Promise.race([first, pause(FIRST_CHECK_MS)]);
    this.#loop = startLoop({
      work: async (stopping) => {
        await this.#check(stopping);
        return this.#maybeLost ? CHECK_LOST_MS : CHECK_MS;
      },
      everyMs: CHECK_MS,
      backoffBaseMs: CHECK_LOST_MS,
      backoffCapMs: CHECK_MS,
      failed: (error) => deps.log.debug({ error: oneLine(error) }, "the check for losses, or a recovery, failed"),
      closeMs: SECOND,
    });
  }

  /**
   * Resolves when the replay would begin at or before `admittedAt`, whichever identity record survives a loss.
   *
   * @throws AppError `unavailable` after 30 s, or if the signal aborts
   */
  async untilCovered(admittedAt: number, stopping: AbortSignal): Promise<void> {
    const until = performance.now() + COVER_TIMEOUT_MS;
    while (!this.#covers(admittedAt)) {
      if (stopping.aborted || performance.now() > until)
        throw new AppError("unavailable", "the record in Redis does not reach back to this event yet");
      await pause(CHECK_MS / 4, stopping);
    }
  }

  async close(): Promise<void> {
    await this.#loop.close();
    await this.deps.recovery?.lease.release();
  }

  async #check(stopping: AbortSignal): Promise<void> {
    const { identity, readLogState, recovery, log } = this.deps;
    const inCharge = recovery !== undefined && (await recovery.lease.hold());
    const record = await identity.read();
    if (!this.inCharge || !inCharge) this.behind = record.log?.behind;
    this.inCharge = inCharge;
    // The log is read after the record: it may be ahead of it, but never behind.
    const state = await readLogState();
    const isEmpty = record.redis === "none";
    const replaced = this.#known !== undefined && isOtherLog(this.#known, state);
    // The contents of Redis are rebuilt from the upstreams as they are read: there is nothing to recover.
    if (isEmpty && inCharge && (replaced || this.#known === undefined)) await recovery.beginFirstFill({ replaced });
    const loss = lossOf(record, state, this.#known);
    if (loss && !this.#maybeLost) log.warn({ ...loss }, "Redis or the log may have lost confirmed data");
    this.#maybeLost = loss !== undefined;
    this.#setAside = record.log?.setAside ?? [];
    if (!loss && state.drops !== "" && (!isEmpty || inCharge)) this.#known = state;
    this.#remember(record.from);
    // The process in charge first finds out if anybody has worked on the log yet.
    if (!loss && (!isEmpty || inCharge || recovery === undefined)) this.#firstChecked();
    if (!inCharge) return;
    if (loss) await this.#recover(recovery, { loss, state, stopping });
    else await this.#record(recovery, state);
  }

  /** Returns true once the record has reached back to a time for as long as Redis may fall back. */
  #covers(admittedAt: number): boolean {
    const [oldest] = this.#seen;
    const longEnough = oldest !== undefined && oldest.at <= performance.now() - FALLBACK_MS;
    return longEnough && !this.#maybeLost && this.#seen.every(({ from }) => from <= admittedAt);
  }

  #remember(from: number): void {
    const now = performance.now();
    // One check from before the window stands for its beginning.
    const within = this.#seen.findIndex(({ at: time }) => time > now - FALLBACK_MS);
    this.#seen = [...this.#seen.slice(within < 0 ? -1 : Math.max(0, within - 1)), { at: now, from }];
  }

  async #record(recovery: Recovery, state: LogState): Promise<void> {
    const { identity, readLogState } = this.deps;
    const { readBacklog, bound } = recovery;
    // The log decides: two may have bound it at the same time, or an earlier version removed the name.
    const redis = state.redis ?? bound?.redis;
    if (bound && state.redis === undefined && state.drops !== "") await bound.bind(bound.redis);
    const backlog = await readBacklog();
    // A backlog of other streams than these would say nothing about them.
    if (!isSameLog(state, await readLogState())) return;
    const setAside = this.#setAside.length === 0 ? [] : stillMissing(this.#setAside, await recovery.readUnapplied());
    const log = { ...state, redis, setAside, behind: this.behind };
    await identity.record({ backlog, log, recovered: false });
  }

  async #recover(
    recovery: Recovery,
    { loss, state, stopping }: { loss: Loss; state: LogState; stopping: AbortSignal },
  ): Promise<void> {
    const { backlog, events, setAside } = await renewing(recovery.lease, async () => {
      if (loss.redis) await pause(recovery.leaveMs ?? 0, stopping);
      const backlog = await recovery.readBacklog();
      return { backlog, ...(await recovery.recover(loss, stopping)) };
    });
    if (stopping.aborted) return;
    const redis = state.redis ?? recovery.bound?.redis;
    const log = { ...state, redis, setAside, behind: this.behind };
    await this.deps.identity.record({ backlog, log, recovered: true });
    this.#known = state;
    this.#setAside = setAside;
    this.#maybeLost = false;
    this.#firstChecked();
    recovery.observe(loss, events);
    const users = setAside.map(({ user }) => user).slice(0, NAMED_USERS);
    if (setAside.length > 0)
      this.deps.log.warn(
        { users, count: setAside.length },
        "what depends on an unavailable upstream is set aside; homes that may lack it are degraded",
      );
    this.deps.log.warn({ ...loss, events }, "everything that may have been lost is applied again");
  }
}

function stillMissing(setAside: readonly SetAside[], { acked, start, waiting }: Unapplied): readonly SetAside[] {
  const isWaiting = ({ kind, user }: Affected): boolean =>
    waiting.some(({ affected }) => affected?.kind === kind && affected.user === user);
  return setAside.filter((entry) => acked < entry.seq || start <= entry.at || isWaiting(entry));
}

const isSameLog = (before: LogState, now: LogState): boolean =>
  before.drops === now.drops && before.fanout === now.fanout && before.last <= now.last;

const isOtherLog = (before: LogState, now: LogState): boolean => before.drops !== now.drops || before.last > now.last;

function lossOf(record: IdentityRecord, state: LogState, known: LogState | undefined): Loss | undefined {
  // A Redis without a record is empty: its timelines are rebuilt as they are read.
  if (record.redis === "none") return undefined;
  const before = record.log ?? known;
  const redis = record.redis === "other";
  const log = before !== undefined && isOtherLog(before, state);
  // The planner is done with the events of lost jobs: they are planned again from the log.
  const jobs = before !== undefined && (before.fanout !== state.fanout || (before.lastJob ?? 0) > (state.lastJob ?? 0));
  return redis || log || jobs ? { since: record.from, redis, log } : undefined;
}
