/** Says that a call has ended, with its error or without. Once. */
export type Ended = (error?: unknown) => void;

/** A piece of work, whose calls come before those of later places. */
export interface Place {
  /**
   * Begins a call for each item, in their order. Rejects with the first error, also one that `call` throws; nothing begins
   * after it.
   */
  each<T>(items: Iterable<T>, call: (item: T, ended: Ended) => void): Promise<void>;
  one<T>(call: () => Promise<T>): Promise<T>;
}

/** Serves the oldest piece of work first: if all took turns, all would finish late. */
export interface OldestFirst {
  place(): Place;
}

interface Round {
  readonly place: number;
  begin(): void;
}

export function createOldestFirst(atOnce: number): OldestFirst {
  /** Those that have calls to begin, the oldest first. */
  const rounds: Round[] = [];
  let underWay = 0;
  let places = 0;
  let isFilling = false;

  const fill = (): void => {
    // A call may end before it returns.
    if (isFilling) return;
    isFilling = true;
    try {
      while (underWay < atOnce && rounds[0]) rounds[0].begin();
    } finally {
      isFilling = false;
    }
  };

  const leave = (round: Round): void => {
    const at = rounds.indexOf(round);
    if (at >= 0) rounds.splice(at, 1);
  };

  const each = <T>(place: number, items: Iterable<T>, call: (item: T, ended: Ended) => void): Promise<void> =>
    new Promise((resolve, reject) => {
      const iterator = items[Symbol.iterator]();
      let next = iterator.next();
      let own = 0;
      const round: Round = {
        place,
        begin() {
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

  const one = async <T>(place: number, call: () => Promise<T>): Promise<T> => {
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
    place() {
      const place = places++;
      return {
        each: (items, call) => each(place, items, call),
        one: (call) => one(place, call),
      };
    },
  };
}
