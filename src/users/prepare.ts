import { edgeSubject } from "../contracts/subjects.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { parseEdge, parseGraphEvent } from "./edge-message.js";
import type { ListCache, ObserveUsers, OutboxEvent, Pair, ReadFollowersNow } from "./ports.js";

/** What is done before events are published. */
export interface PrepareDeps {
  readonly cache: Pick<ListCache, "read" | "drop" | "change">;
  readonly readFollowersNow: ReadFollowersNow;
  /** Counts a change of a user's followers; whether there are very many now. */
  readonly isHot: (user: string) => boolean;
  readonly observe: Pick<ObserveUsers, "redirected">;
  readonly log: Logger;
}

/**
 * Makes what the relay calls before it publishes events of this service: brings up to date what is remembered of the
 * lists they are about, so that nobody hears of a change that a list does not show, and sends changes of users whom very
 * many follow at once aside. Doing it again changes nothing.
 *
 * It rejects with AppError `unavailable` while Redis or the database is away: nothing may be published then.
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
      // Whoever gets it says what is wrong with it; it must not hold up all others here.
      log.error({ id: event.id, error: oneLine(error) }, "an event of the outbox cannot be understood");
    }
  }
  return pairs;
}

/**
 * What is remembered is changed to what the database says now, which may be newer than the event. The generation is
 * read first: whatever else changes the list in between shows by it, and the list is forgotten then.
 */
async function updateFollowers({ cache, readFollowersNow }: PrepareDeps, pairs: readonly Pair[]): Promise<void> {
  if (pairs.length === 0) return;
  const users = [...new Set(pairs.map(({ following }) => following))];
  const heads = await Promise.all(users.map((user) => cache.read("followers", user, "", 0)));
  const remembered = new Map(
    users.flatMap((user, index) => {
      const head = heads[index];
      return head?.total === undefined ? [] : [[user, head.generation] as const];
    }),
  );
  const asked = pairs.filter(({ following }) => remembered.has(following));
  const found = asked.length === 0 ? new Map() : await readFollowersNow(asked);
  await Promise.all(
    users.map((user) => {
      const [generation, now] = [remembered.get(user), found.get(user)];
      return generation === undefined || now === undefined
        ? cache.drop("followers", user)
        : cache.change("followers", user, generation, now);
    }),
  );
}

function inLane({ isHot, observe }: PrepareDeps, event: OutboxEvent, edge: Pair | undefined): OutboxEvent {
  if (edge === undefined || !isHot(edge.following)) return event;
  observe.redirected(1);
  return { ...event, subject: edgeSubject("hot", edge.following) };
}
