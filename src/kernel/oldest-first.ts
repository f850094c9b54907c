import { SECOND } from "./time.js";

/** Says once that a call has ended, with its error or without. */
export type Ended = (error?: unknown) => void;

/** The calls of a piece of work come before those of later places. */
export interface Place {
  /**
   * Begins a call for each item, in their order. Rejects with the first error, also one that `call` throws; nothing begins
   * after it.
   */
  each<T>(items: Iterable<T>, call: (item: T, ended: Ended) => void): Promise<void>;
  one<T>(call: () => Promise<T>): Promise<T>;
}

/**
 * Serves the oldest piece of work first: if all took turns, all would finish late. An owner who has begun `many` calls
 * lately comes after all others, but for every eighth call; one who has begun twice as many comes after that one.
 */
export interface OldestFirst {
  place(owner: string): Place;
}

const WINDOW_MS = 10 * SECOND;
const OLDEST_EVERY = 8;

interface Round {
  readonly place: number;
  readonly owner: string;
  begin(): void;
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

type Owned = Pick<Round, "place" | "owner">;

export function createOldestFirst(atOnce: number, many = 2_048): OldestFirst {
  /** These rounds have calls to begin; the oldest comes first. */
  const rounds: Round[] = [];
  let underWay = 0;
  let places = 0;
  let isFilling = false;

  const shares = createShares(many);
  let turn = 0;
  const next = (): Round | undefined =>
    rounds.length < 2 || ++turn % OLDEST_EVERY === 0 ? rounds[0] : shares.firstOf(rounds);

  const fill = (): void => {
    // A call may end before it returns.
    if (isFilling) return;
    isFilling = true;
    try {
      while (underWay < atOnce && rounds.length > 0) next()?.begin();
    } finally {
      isFilling = false;
    }
  };

  const leave = (round: Round): void => {
    const at = rounds.indexOf(round);
    if (at >= 0) rounds.splice(at, 1);
  };

  const each = <T>({ place, owner }: Owned, items: Iterable<T>, call: (item: T, ended: Ended) => void): Promise<void> =>
    new Promise((resolve, reject) => {
      const iterator = items[Symbol.iterator]();
      let next = iterator.next();
      let own = 0;
      const round: Round = {
        place,
        owner,
        begin() {
          shares.count(owner);
          const item = next.value as T;
          next = iterator.next();
          if (next.done) leave(round);
          own++;
          underWay++;
          try {
            call(item, ended);
          } catch (error) {
            ended(error);
          }
        },
      };
      const ended: Ended = (error) => {
        own--;
        underWay--;
        if (error !== undefined) {
          leave(round);
          reject(error);
        } else if (own === 0 && next.done) resolve();
        fill();
      };
      if (next.done) return resolve();
      rounds.splice(rounds.findLastIndex((other) => other.place <= place) + 1, 0, round);
      fill();
    });

  const one = async <T>(place: Owned, call: () => Promise<T>): Promise<T> => {
    let answer: T | undefined;
    await each(place, [call], (begin, ended) => {
      begin().then((value) => {
        answer = value;
        ended();
      }, ended);
    });
    return answer as T;
  };

  return {
    place(owner) {
      const place = { place: places++, owner };
      return {
        each: (items, call) => each(place, items, call),
        one: (call) => one(place, call),
      };
    },
  };
}
