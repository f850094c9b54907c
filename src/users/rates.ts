import { LRUCache } from "lru-cache";
import { type Clock, SECOND } from "../kernel/time.js";

/** An evicted user starts from zero. */
const MAX_USERS = 10_000;

/** Events arrive in rounds: a user stays hot between two of them. */
const HOT_FOR_MS = 10 * SECOND;

interface Counted {
  hotUntil: number;
  second: number;
  current: number;
  previous: number;
}

/** Each call counts one change; true where one of the last ten seconds had more than `threshold` (sliding window). */
export function createIsHot(threshold: number, now: Clock = Date.now): (user: string) => boolean {
  const users = new LRUCache<string, Counted>({ max: MAX_USERS });
  return (user) => {
    const time = now();
    const second = Math.floor(time / SECOND);
    const counted = users.get(user) ?? { hotUntil: 0, second, current: 0, previous: 0 };
    if (counted.second !== second) {
      counted.previous = counted.second === second - 1 ? counted.current : 0;
      counted.current = 0;
      counted.second = second;
    }
    counted.current += 1;
    users.set(user, counted);
    const left = 1 - (time % SECOND) / SECOND;
    if (counted.current + counted.previous * left > threshold) counted.hotUntil = time + HOT_FOR_MS;
    return time < counted.hotUntil;
  };
}
