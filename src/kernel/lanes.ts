export interface WindowBounds {
  /** Weight that may always be under way. */
  readonly least: number;
  readonly most: number;
  /** Delay above the shortest one that is aimed at. */
  readonly targetMs: number;
}

/** Of a round trip: the window changes by at most so much. */
const GAIN = 1 / 2;
/** The shortest latency is forgotten after one to two of them: a server that became slower is the new baseline. */
const BASELINE_MS = 60_000;

/**
 * Bounds the weight under way by the latency of calls: delay-based congestion control as LEDBAT (RFC 6817) does it. The
 * window grows while calls take hardly longer than the shortest one lately, and shrinks in proportion to the delay.
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

  /** Takes a call that ended. An idle window does not grow: its latency says nothing of a full one. */
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

  /** Takes a call that failed: of a timeout, the longest of all. */
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
  /** Weight that may be under way now. */
  readonly window: number;
  /** Calls that have not begun. */
  readonly waiting: number;
}

export interface Lanes {
  readonly prompt: Lane;
  readonly yielding: Lane;
}

/**
 * Two lanes to one server, each with a window of its own. While a call of `prompt` waits, `yielding` has only its
 * least window: it neither delays that call by more nor stands still.
 */
export function createLanes(
  bounds: Readonly<Record<keyof Lanes, WindowBounds>>,
  clock = () => performance.now(),
): Lanes {
  const lanes = {
    prompt: new WindowedLane(bounds.prompt, clock, () => admit()),
    yielding: new WindowedLane(bounds.yielding, clock, () => admit()),
  };
  const admit = (): void => {
    lanes.prompt.admit(lanes.prompt.window);
    lanes.yielding.admit(lanes.prompt.waiting > 0 ? bounds.yielding.least : lanes.yielding.window);
  };
  return lanes;
}

class WindowedLane implements Lane {
  readonly #window: Window;
  readonly #waiting: { readonly weight: number; readonly begin: () => void }[] = [];
  #underWay = 0;

  constructor(
    bounds: WindowBounds,
    private readonly clock: () => number,
    private readonly changed: () => void,
  ) {
    this.#window = new Window(bounds);
  }

  get window(): number {
    return this.#window.size;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** A call heavier than the window goes alone. */
  admit(window: number): void {
    for (let [next] = this.#waiting; next; [next] = this.#waiting) {
      if (this.#underWay > 0 && this.#underWay + next.weight > window) return;
      this.#waiting.shift();
      this.#underWay += next.weight;
      next.begin();
    }
  }

  async run<T>(weight: number, call: () => Promise<T>): Promise<T> {
    await new Promise<void>((begin) => {
      this.#waiting.push({ weight, begin });
      this.changed();
    });
    const begun = this.clock();
    try {
      const result = await call();
      const now = this.clock();
      this.#window.ended({ weight, ms: now - begun, isFull: this.#waiting.length > 0, now });
      return result;
    } catch (error) {
      this.#window.failed(weight);
      throw error;
    } finally {
      this.#underWay -= weight;
      this.changed();
    }
  }
}
