/** Bounds calls that belong to larger pieces of work, and serves the pieces in their order. */
export interface OldestFirst {
  /** The place of a piece of work: behind all that have one. */
  place(): number;
  /** Makes a call once fewer than the limit are under way, and no older piece of work has one waiting. */
  run<T>(place: number, call: () => Promise<T>): Promise<T>;
}

/**
 * Serving the oldest piece of work first lets the pieces finish one after another. Taking
 * turns instead would let all of them finish late.
 */
export function createOldestFirst(atOnce: number): OldestFirst {
  const waiting = new Map<number, (() => void)[]>();
  let underWay = 0;
  let places = 0;

  const turn = (place: number): Promise<void> | undefined => {
    if (underWay < atOnce) {
      underWay++;
      return undefined;
    }
    return new Promise((resolve) => {
      const line = waiting.get(place) ?? [];
      line.push(resolve);
      waiting.set(place, line);
    });
  };

  const release = (): void => {
    if (waiting.size === 0) {
      underWay--;
      return;
    }
    // Pieces of work are few: the callers bound them.
    const oldest = Math.min(...waiting.keys());
    const line = waiting.get(oldest) as (() => void)[];
    const next = line.shift() as () => void;
    if (line.length === 0) waiting.delete(oldest);
    next();
  };

  return {
    place: () => places++,
    async run(place, call) {
      await turn(place);
      try {
        return await call();
      } finally {
        release();
      }
    },
  };
}
