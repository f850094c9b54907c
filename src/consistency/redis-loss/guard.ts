import { AppError, oneLine } from "../../kernel/errors.js";
import { type Lease, renewing } from "../../kernel/lease.js";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";
import type { Continuity, HeldNote, LogMark, ReadBacklog, ReadLogMark } from "./ports.js";

/** What has been lost, and since when. */
export interface Loss {
  /** Events admitted before it (ms since the epoch) are applied. */
  readonly since: number;
  /** Redis may have lost writes it had confirmed. */
  readonly redis: boolean;
  /** `DROPS` does not hold what it was given: the upstreams are asked what changed. */
  readonly log: boolean;
  /** The note went too: nothing says how far the log was applied, nor what the shared timelines held. */
  readonly note: boolean;
}

/** What a process needs to make good for a loss. */
export interface Mending {
  readonly lease: Lease;
  readonly readBacklog: ReadBacklog;
  /** Admits and applies again what was lost; resolves to how many events were applied. Where it rejects it is begun anew. */
  readonly mend: (loss: Loss, stopping: AbortSignal) => Promise<number>;
  readonly observe: (loss: Loss, events: number) => void;
}

interface GuardDeps {
  readonly continuity: Continuity;
  readonly readLogMark: ReadLogMark;
  readonly log: Logger;
  /** Unset: this process only looks. */
  readonly mending?: Mending | undefined;
}

/** Watches over what Redis has confirmed, and over the log. */
export interface Guard {
  /** True from when data may be missing until it has been applied again. */
  broken(): boolean;
  /** A link was lost: until the next look nothing is known. */
  doubt(): void;
  /**
   * Resolves once every note that a Redis may fall back to would have an event of that time (ms since the epoch)
   * applied again.
   *
   * @throws AppError `unavailable` where that takes long, or the signal aborts
   */
  untilCovered(admittedAt: number, stopping: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

const LOOK_MS = SECOND;
/** Longer than what a Redis may lose at its end: a second between two syncs, or what a replica lags behind. */
const FALLBACK_MS = 5 * SECOND;
const COVER_PATIENCE_MS = 30 * SECOND;

/**
 * Looks every second whether Redis and the log are still those, with the data,
 * that they were; one process also notes how far the log is applied. Where a
 * Redis lost what it had confirmed (it crashed, or a replica took over), or
 * `DROPS` or `FANOUT` was made anew, what may be missing is applied again.
 */
export function startGuard(deps: GuardDeps): Guard {
  const stopping = new AbortController();
  const watch = new Watch(deps, stopping.signal);
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await watch
        .look()
        .catch((error: unknown) =>
          deps.log.debug({ error: oneLine(error) }, "a loss cannot be looked for or made good yet"),
        );
      await pause(LOOK_MS, stopping.signal);
    }
  };
  const running = run();
  return {
    broken: () => watch.broken,
    doubt: () => {
      watch.broken = true;
    },
    async untilCovered(admittedAt, signal) {
      const until = Date.now() + COVER_PATIENCE_MS;
      while (!watch.covers(admittedAt)) {
        if (signal.aborted || Date.now() > until)
          throw new AppError("unavailable", "the note in Redis does not reach back to this event yet");
        await pause(LOOK_MS / 4, signal);
      }
    },
    async close() {
      stopping.abort();
      await Promise.race([running, pause(SECOND)]);
      await deps.mending?.lease.release();
    },
  };
}

class Watch {
  broken = false;
  /** The streams as they were when nothing was lost. It outlives a note that is lost together with them. */
  #known: LogMark | undefined;
  /** What the note said of late, and since when. */
  #seen: { readonly at: number; readonly from: number }[] = [];

  constructor(
    private readonly deps: GuardDeps,
    private readonly stopping: AbortSignal,
  ) {}

  async look(): Promise<void> {
    const { continuity, readLogMark, mending, log } = this.deps;
    const inCharge = mending !== undefined && (await mending.lease.hold());
    const held = await continuity.read();
    // After the note: the streams may go on, but never lie behind it.
    const mark = await readLogMark();
    const loss = lossOf(held, mark, this.#known);
    if (loss && !this.broken) log.warn({ ...loss }, "Redis or the log may have lost what it had confirmed");
    this.broken = loss !== undefined;
    if (!loss && mark.drops !== "") this.#known = mark;
    this.#remember(held.from);
    if (inCharge) await this.#takeCharge(mending, loss, mark);
  }

  /** Whether the note has reached back to a time for as long as a Redis may fall back. */
  covers(admittedAt: number): boolean {
    const [oldest] = this.#seen;
    const longEnough = oldest !== undefined && oldest.at <= Date.now() - FALLBACK_MS;
    return longEnough && !this.broken && this.#seen.every(({ from }) => from <= admittedAt);
  }

  #remember(from: number): void {
    const now = Date.now();
    // One look from before the window stands for its beginning.
    const within = this.#seen.findIndex(({ at }) => at > now - FALLBACK_MS);
    this.#seen = [...this.#seen.slice(within < 0 ? -1 : Math.max(0, within - 1)), { at: now, from }];
  }

  async #takeCharge(mending: Mending, loss: Loss | undefined, mark: LogMark): Promise<void> {
    const { continuity, readLogMark, log } = this.deps;
    const backlog = await mending.readBacklog();
    if (!loss) {
      // A backlog that was read from other streams than these says nothing about them.
      const after = await readLogMark();
      if (isSameLog(mark, after)) await continuity.note({ backlog, log: mark, mended: false });
      return;
    }
    const events = await renewing(mending.lease, () => mending.mend(loss, this.stopping));
    if (this.stopping.aborted) return;
    await continuity.note({ backlog, log: mark, mended: true });
    this.#known = mark;
    this.broken = false;
    mending.observe(loss, events);
    log.warn({ ...loss, events }, "what may have been lost has been applied again");
  }
}

const isSameLog = (one: LogMark, other: LogMark): boolean =>
  one.drops === other.drops && one.fanout === other.fanout && one.last <= other.last;

function lossOf(held: HeldNote, mark: LogMark, known: LogMark | undefined): Loss | undefined {
  const before = held.log ?? known;
  const redis = held.redis === "broken";
  const note = held.redis === "new";
  const log = before !== undefined && (before.drops !== mark.drops || before.last > mark.last);
  // Its jobs were of events the planner is done with: they are planned again from the log.
  const jobs = before !== undefined && before.fanout !== mark.fanout;
  // A Redis without a note is empty: its timelines are rebuilt as they are read.
  if (!redis && !log && !(jobs && !note)) return undefined;
  return { since: note ? 0 : held.from, redis, log, note };
}
