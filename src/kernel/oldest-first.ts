import { SECOND } from "./time.js";

export type OldestFirst = ReturnType<typeof createOldestFirst>;

const WINDOW_MS = 10 * SECOND;
const OLDEST_EVERY = 8;

interface Round {
  /** Number of the piece of work, in the order in which they came. */
  readonly arrival: number;
  readonly owner: string;
  readonly begin: () => Promise<void>;
}

/** Counts the calls of each owner since the window began. */
function createShares(many: number) {
  const begun = new Map<string, number>();
  let since = 0;
  const levelOf = ({ owner }: Round): number => Math.floor((begun.get(owner) ?? 0) / many);
  return {
    count(owner: string): void {
      const now = performance.now();
      if (now - since > WINDOW_MS) {
        since = now;
        begun.clear();
      }
      begun.set(owner, (begun.get(owner) ?? 0) + 1);
    },
    firstOf: (rounds: readonly Round[]): Round | undefined =>
      rounds.reduce((first, round) => (levelOf(round) < levelOf(first) ? round : first)),
  };
}

/**
 * Serves the oldest piece of work first: if all took turns, all would finish late. An owner who has begun `many` calls
 * lately comes after all others, but for every eighth call; one who has begun twice as many comes after that one.
 */
export function createOldestFirst(atOnce: number, many = 2_048) {
  /** Rounds that have calls to begin, the oldest first. */
  const rounds: Round[] = [];
  let underWay = 0;
  let arrivals = 0;

  const shares = createShares(many);
  let turn = 0;
  const next = (): Round | undefined =>
    rounds.length < 2 || ++turn % OLDEST_EVERY === 0 ? rounds[0] : shares.firstOf(rounds);

  const fill = (): void => {
    while (underWay < atOnce && rounds.length > 0) void next()?.begin();
  };

  const leave = (round: Round): void => {
    const index = rounds.indexOf(round);
    if (index >= 0) rounds.splice(index, 1);
  };

  const queueAt = (arrival: number, owner: string) => {
    /** Begins a call for each item, in their order. Rejects with the first error; nothing begins after it. */
    const each = <T>(items: Iterable<T>, call: (item: T) => Promise<void>): Promise<void> =>
      new Promise((resolve, reject) => {
        const iterator = items[Symbol.iterator]();
        let next = iterator.next();
        let underWayHere = 0;
        const begin = async (): Promise<void> => {
          shares.count(owner);
          const item = next.value as T;
          next = iterator.next();
          if (next.done) leave(round);
          underWayHere++;
          underWay++;
          try {
            await call(item);
          } catch (error) {
            leave(round);
            reject(error);
          }
          underWayHere--;
          underWay--;
          if (underWayHere === 0 && next.done) resolve();
          fill();
        };
        const round: Round = { arrival, owner, begin };
        if (next.done) return resolve();
        rounds.splice(rounds.findLastIndex((other) => other.arrival <= arrival) + 1, 0, round);
        fill();
      });
    return {
      each,
      async one<T>(call: () => Promise<T>): Promise<T> {
        let answer: T | undefined;
        await each([call], async (begin) => {
          answer = await begin();
        });
        return answer as T;
      },
    };
  };

  return {
    /** Returns the queue of a piece of work. Its calls come before those of later queues. */
    queue: (owner: string) => queueAt(arrivals++, owner),
  };
}
