import { isEdge, isErasure, isRelation, type TimelineEvent } from "../contracts/events.js";
import type { Erased } from "../state/erased/erasures.js";

interface Logged {
  readonly event: TimelineEvent;
}

const EVENTS_A_QUESTION = 1_000;

function usersOf({ event }: Logged): readonly string[] {
  if (isErasure(event)) return [];
  if (isEdge(event)) return [event.payload.follower_id, event.payload.following_id];
  if (isRelation(event)) return [event.payload.user_id, event.payload.target_id];
  const { user_id } = event.payload;
  return user_id === undefined ? [] : [user_id];
}

/** A deletion counts also without its author. */
function withoutThem<One extends Logged>(one: One, gone: ReadonlySet<string>): One[] {
  if (!usersOf(one).some((user) => gone.has(user))) return [one];
  if (one.event.name !== "drop_deleted") return [];
  const event = { ...one.event, payload: { ...one.event.payload, user_id: undefined } };
  return [{ ...one, event }];
}

/** Leaves out of the log what names an erased user: neither fences nor comparisons with the upstreams know them. */
export async function* eventsWithoutErased<One extends Logged>(
  { among }: Pick<Erased, "among">,
  events: AsyncIterable<One>,
): AsyncGenerator<One> {
  let some: One[] = [];
  const judged = async (): Promise<readonly One[]> => {
    const gone = await among([...new Set(some.flatMap(usersOf))]);
    const standing = gone.size === 0 ? some : some.flatMap((one) => withoutThem(one, gone));
    some = [];
    return standing;
  };
  for await (const one of events) {
    some.push(one);
    if (some.length === EVENTS_A_QUESTION) yield* await judged();
  }
  yield* await judged();
}
