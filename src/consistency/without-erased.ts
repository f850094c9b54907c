import { isEdge, isErasure, isRelation, isStanding, type TimelineEvent } from "../contracts/events.js";
import { type Erased, usersOfStanding } from "../state/index.js";

interface Logged {
  readonly event: TimelineEvent;
}

const EVENTS_A_QUESTION = 1_000;

function usersOf({ event }: Logged): readonly string[] {
  if (isErasure(event)) return [];
  if (isEdge(event)) return [event.payload.follower_id, event.payload.following_id];
  if (isRelation(event)) return [event.payload.user_id, event.payload.target_id];
  if (isStanding(event)) return usersOfStanding(event);
  const { user_id } = event.payload;
  return user_id === undefined ? [] : [user_id];
}

/** Leaves out the erased users of an event; a deletion is kept without its author. */
function withoutThem<One extends Logged>(logged: One, gone: ReadonlySet<string>): One[] {
  if (!usersOf(logged).some((user) => gone.has(user))) return [logged];
  if (logged.event.name !== "drop_deleted") return [];
  const event = { ...logged.event, payload: { ...logged.event.payload, user_id: undefined } };
  return [{ ...logged, event }];
}

/** Drops events of the log that name an erased user: neither fences nor comparisons with the upstreams need them. */
export async function* eventsWithoutErased<One extends Logged>(
  { among }: Pick<Erased, "among">,
  events: AsyncIterable<One>,
): AsyncGenerator<One> {
  let batch: One[] = [];
  const kept = async (): Promise<readonly One[]> => {
    const gone = await among([...new Set(batch.flatMap(usersOf))]);
    const events = gone.size === 0 ? batch : batch.flatMap((logged) => withoutThem(logged, gone));
    batch = [];
    return events;
  };
  for await (const logged of events) {
    batch.push(logged);
    if (batch.length === EVENTS_A_QUESTION) yield* await kept();
  }
  yield* await kept();
}
