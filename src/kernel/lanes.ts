export interface WindowBounds {
  /** So much weight may always be under way. */
  readonly least: number;
  readonly most: number;
  /** Calls may be delayed so much above the shortest latency. */
  readonly targetMs: number;
}

/** The window changes by at most this share of the weight of a call. */
const GAIN = 1 / 2;
/** The shortest latency is forgotten after one to two such periods, so that a server that became slower sets a new baseline. */
const BASELINE_MS = 60_000;

/**
 * Bounds the weight under way by the latency of calls: delay-based congestion control as LEDBAT (RFC 6817) does it. The
 * window grows while calls take hardly longer than the shortest recent one, and shrinks in proportion to the delay.
 */
export class Window {
  #size: number;
  #since = Number.NEGATIVE_INFINITY;
  #shortest = Number.POSITIVE_INFINITY;
  #before = Number.POSITIVE_INFINITY;

  constructor(private readonly bounds: WindowBounds) {
    this.#size = bounds.least;
  }

  get size(): number {
    return this.#size;
  }

  /** Records a call that ended. A window that is not full does not grow: its latency says nothing about a full one. */
  ended(call: { readonly weight: number; readonly ms: number; readonly isFull: boolean; readonly now: number }): void {
    const { weight, ms, isFull, now } = call;
    if (now - this.#since >= BASELINE_MS) {
      this.#before = now - this.#since < 2 * BASELINE_MS ? this.#shortest : Number.POSITIVE_INFINITY;
      this.#shortest = Number.POSITIVE_INFINITY;
      this.#since = now;
    }
    this.#shortest = Math.min(this.#shortest, ms);
    const delay = ms - Math.min(this.#shortest, this.#before);
    const change = Math.max(-1, 1 - delay / this.bounds.targetMs);
    if (isFull || change < 0) this.#resize(change * weight);
  }

  /** Records a call that failed, such as by a timeout. */
  failed(weight: number): void {
    this.#resize(-weight);
  }

  #resize(change: number): void {
    const { least, most } = this.bounds;
    this.#size = Math.min(most, Math.max(least, this.#size + GAIN * change));
  }
}

/** Calls of a lane begin in the order in which they came. */
export interface Lane {
  run<T>(weight: number, call: () => Promise<T>): Promise<T>;
  /** So much weight may be under way now. */
  readonly window: number;
  /** So many calls have not begun. */
  readonly waiting: number;
  /** Returns for how long the lane pauses after a call of that weight that took `ms`. */
  pauseMs(weight: number, ms: number): number;
}

export interface Lanes {
  readonly prompt: Lane;
  readonly yielding: Lane;
}

/** The clock is any that counts ms; `after` calls at a later time. */
interface Timers {
  now(): number;
  after(ms: number, call: () => void): void;
}

const REAL: Timers = { now: () => performance.now(), after: (ms, call) => void setTimeout(call, ms) };

/** Another prompt call is expected for so long after one. */
const RECENTLY_MS = 100;
const MAX_PAUSE_MS = 50;

/**
 * Two lanes to one server, each with a window of its own. While `prompt` has calls, the window of `yielding` shrinks to
 * `beside`. If that is less than one call, one call runs at a time and the lane then pauses, so that it is busy for
 * `beside` / call weight of the time. Latency alone cannot show the need: a small drop makes ten fast calls, and shares
 * its cores with the work behind this lane.
 */
export function createLanes(
  bounds: Readonly<Record<keyof Lanes, WindowBounds>> & { readonly beside: number },
  timers = REAL,
): Lanes {
  let recentUntil = Number.NEGATIVE_INFINITY;
  const prompt = new WindowedLane(bounds.prompt, timers, {
    current: (size) => size,
    changed: () => {
      recentUntil = timers.now() + RECENTLY_MS;
      admit();
    },
  });
  const yielding = new WindowedLane(bounds.yielding, timers, {
    current: (size) => (prompt.waiting > 0 || timers.now() < recentUntil ? bounds.beside : size),
    changed: () => admit(),
  });
  const admit = (): void => {
    prompt.admit();
    yielding.admit();
  };
  return { prompt, yielding };
}

interface LaneOptions {
  /** Returns the window in force, of the size that the latency allows. */
  readonly current: (size: number) => number;
  readonly changed: () => void;
}

class WindowedLane implements Lane {
  readonly #window: Window;
  readonly #waiting: { readonly weight: number; readonly begin: () => void }[] = [];
  #underWay = 0;
  #isPaused = false;

  constructor(
    bounds: WindowBounds,
    private readonly timers: Timers,
    private readonly options: LaneOptions,
  ) {
    this.#window = new Window(bounds);
  }

  get window(): number {
    return this.options.current(this.#window.size);
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** A call heavier than the window goes alone. */
  admit(): void {
    for (let [next] = this.#waiting; next && !this.#isPaused; [next] = this.#waiting) {
      if (this.#underWay > 0 && this.#underWay + next.weight > this.window) return;
      this.#waiting.shift();
      this.#underWay += next.weight;
      next.begin();
    }
  }

  async run<T>(weight: number, call: () => Promise<T>): Promise<T> {
    await new Promise<void>((begin) => {
      this.#waiting.push({ weight, begin });
      this.options.changed();
    });
    const begun = this.timers.now();
    try {
      const result = await call();
      const now = this.timers.now();
      this.#window.ended({ weight, ms: now - begun, isFull: this.#waiting.length > 0, now });
      return result;
    } catch (error) {
      this.#window.failed(weight);
      throw error;
    } finally {
      this.#underWay -= weight;
      this.#pauseFor(this.pauseMs(weight, this.timers.now() - begun));
      this.options.changed();
    }
  }

  pauseMs(weight: number, ms: number): number {
    return Math.min(Math.max(0, weight / this.window - 1) * ms, MAX_PAUSE_MS);
  }

  #pauseFor(ms: number): void {
    if (ms === 0 || this.#isPaused) return;
    this.#isPaused = true;
    this.timers.after(ms, () => {
      this.#isPaused = false;
      this.options.changed();
    });
  }
}
