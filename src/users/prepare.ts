import { LRUCache } from "lru-cache";
import type { OutboxEvent } from "../contracts/outbox.js";
import { edgeSubject } from "../contracts/subjects.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { type Clock, SECOND } from "../kernel/time.js";
import type { ListCache } from "./cache.redis.js";
import { type Pair, parseEdge, parseGraphEvent } from "./edges.js";
import type { EdgeStore } from "./edges.sql.js";
import type { ObserveUsers } from "./observe.js";

interface PrepareDeps {
  readonly cache: Pick<ListCache, "read" | "drop" | "change">;
  readonly currentFollowers: EdgeStore["currentFollowers"];
  /** Counts a change of a user's followers; true while there are very many changes. */
  readonly isHot: (user: string) => boolean;
  readonly observe: Pick<ObserveUsers, "redirected">;
  readonly log: Logger;
}

/**
 * Updates the cached lists before the relay publishes events, so that a list contains a change before its event is
 * published, and moves the edges of users with very many new followers to the hot lane. It may run twice. It rejects
 * with AppError `unavailable` while Redis or the database is unavailable: nothing may be published then.
 */
export function createPrepareUserEvents(
  deps: PrepareDeps,
): (events: readonly OutboxEvent[]) => Promise<readonly OutboxEvent[]> {
  return async (events) => {
    const edges = pairsOf(deps, events, "edges.", parseEdge);
    const graph = pairsOf(deps, events, "graph.", parseGraphEvent);
    try {
      await Promise.all([
        ...[...new Set([...edges.values()].map(({ follower }) => follower))].map((follower) =>
          deps.cache.drop("following", follower),
        ),
        updateFollowers(deps, [...graph.values()]),
      ]);
    } catch (error) {
      if (codeOf(error) === "unavailable") throw error;
      throw new AppError("unavailable", `lists could not be brought up to date: ${oneLine(error)}`, { cause: error });
    }
    return events.map((event) => inLane(deps, event, edges.get(event)));
  };
}

function pairsOf(
  { log }: PrepareDeps,
  events: readonly OutboxEvent[],
  prefix: string,
  parse: (body: Uint8Array) => Pair,
): Map<OutboxEvent, Pair> {
  const pairs = new Map<OutboxEvent, Pair>();
  for (const event of events) {
    if (!event.subject.startsWith(prefix)) continue;
    try {
      pairs.set(event, parse(Buffer.from(event.body)));
    } catch (error) {
      // Its consumer dead-letters it; here it must not hold up the other events.
      log.error({ id: event.id, error: oneLine(error) }, "an event of the outbox cannot be parsed");
    }
  }
  return pairs;
}

/** The generation is read first: where a list changes in between, it is removed from the cache. */
async function updateFollowers({ cache, currentFollowers }: PrepareDeps, pairs: readonly Pair[]): Promise<void> {
  if (pairs.length === 0) return;
  const users = [...new Set(pairs.map(({ following }) => following))];
  const heads = await Promise.all(users.map((user) => cache.read("followers", user, "", 0)));
  const generations = new Map(
    users.flatMap((user, index) => {
      const head = heads[index];
      return head?.total === undefined ? [] : [[user, head.generation] as const];
    }),
  );
  const asked = pairs.filter(({ following }) => generations.has(following));
  const found = new Map((asked.length === 0 ? [] : await currentFollowers(asked)).map((one) => [one.user, one]));
  await Promise.all(
    users.map((user) => {
      const [generation, current] = [generations.get(user), found.get(user)];
      return generation === undefined || current === undefined
        ? cache.drop("followers", user)
        : cache.change("followers", user, generation, current);
    }),
  );
}

function inLane({ isHot, observe }: PrepareDeps, event: OutboxEvent, edge: Pair | undefined): OutboxEvent {
  if (edge === undefined || !isHot(edge.following)) return event;
  observe.redirected(1);
  return { ...event, subject: edgeSubject("hot", edge.following) };
}

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
