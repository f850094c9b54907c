import { createCache } from "../contracts/caches.js";
import { parseStored, type StandingEvent, SUBJECT_OF } from "../contracts/events.js";
import type { OutboxEvent } from "../contracts/outbox.js";
import { edgeSubject } from "../contracts/subjects.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { type Clock, SECOND, sharedNow } from "../kernel/time.js";
import type { ListCache, Standings } from "../state/index.js";
import { type Pair, parsePair } from "./edges.js";
import { observeUsers } from "./observe.js";
import { isRelationSubject } from "./relations.js";

interface PrepareDeps {
  readonly cache: Pick<ListCache, "discard">;
  readonly recordStandings: Standings["record"];
  readonly isHot: (user: string) => boolean;
  readonly log: Logger;
}

/** No cached list contains blocks, mutes and standings, and an erasure discards lists itself. */
const isOfNoList = (subject: string): boolean =>
  isRelationSubject(subject) || subject === SUBJECT_OF.user_erased || subject === SUBJECT_OF.standing_changed;

/**
 * A list contains a change before its event is published, since its cached copy is discarded first, and so does the copy
 * of standings in Redis. Rejects with AppError `unavailable` while Redis is unavailable: nothing may be published then.
 */
export function createPrepareUserEvents({ cache, recordStandings, isHot, log }: PrepareDeps) {
  return async (events: readonly OutboxEvent[]): Promise<readonly OutboxEvent[]> => {
    const parsed = events.map((event) => ({
      event,
      isEdge: event.subject.startsWith("edges."),
      pair: isOfNoList(event.subject) ? undefined : pairOf(event, log),
    }));
    const followers = parsed.flatMap(({ isEdge, pair }) => (isEdge && pair ? pair.follower_id : []));
    const followed = parsed.flatMap(({ isEdge, pair }) => (!isEdge && pair ? pair.following_id : []));
    const standings = events
      .filter(({ subject }) => subject === SUBJECT_OF.standing_changed)
      .map(({ subject, body }) => parseStored(subject, Buffer.from(body), sharedNow()) as StandingEvent);
    try {
      if (standings.length > 0) await recordStandings(standings.map(({ payload }) => payload));
      await Promise.all([
        ...[...new Set(followers)].map((user) => cache.discard("following", user)),
        ...[...new Set(followed)].map((user) => cache.discard("followers", user)),
      ]);
    } catch (error) {
      if (codeOf(error) === "unavailable") throw error;
      throw new AppError("unavailable", `cached lists could not be dropped: ${oneLine(error)}`, { cause: error });
    }
    return parsed.map(({ event, isEdge, pair }) => {
      if (!isEdge || pair === undefined || !isHot(pair.following_id)) return event;
      observeUsers.redirected(1);
      return { ...event, subject: edgeSubject("hot", pair.following_id) };
    });
  };
}

function pairOf({ id, body }: OutboxEvent, log: Logger): Pair | undefined {
  try {
    return parsePair(Buffer.from(body));
  } catch (error) {
    // Its consumer dead-letters it; here it must not hold up the other events.
    log.error({ id, error: oneLine(error) }, "an event of the outbox cannot be parsed");
    return undefined;
  }
}

/** Events arrive in rounds: a user stays hot between two of them. */
const HOT_FOR_MS = 10 * SECOND;

interface Counted {
  hotUntil: number;
  second: number;
  current: number;
  previous: number;
}

/** Memory of an object of four numbers. */
const COUNTED_BYTES = 100;

/** Each call counts one change; true if one of the last ten seconds had more than `threshold` (sliding window). */
export function createIsHot(threshold: number, now: Clock = Date.now): (user: string) => boolean {
  // An evicted user starts from zero.
  const users = createCache<Counted>("hotUsers", { sizeOf: () => COUNTED_BYTES });
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
    const weight = 1 - (time % SECOND) / SECOND;
    if (counted.current + counted.previous * weight > threshold) counted.hotUntil = time + HOT_FOR_MS;
    return time < counted.hotUntil;
  };
}
