import type { NatsConnection } from "nats";
import { type Place, personOf } from "../contracts/people.js";
import type { Queries } from "../platform/db/db.js";
import type { Publish } from "../platform/nats/publish.js";
import type { Forget, State } from "../state/index.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";
import { listedDrops } from "./drops.grpc.js";
import { createForget } from "./forget.js";
import { createMessages } from "./messages.nats.js";
import { createPlaces } from "./places.js";
import { verifyStreams } from "./verify-streams.nats.js";
import { verifyTables } from "./verify-tables.sql.js";

export { liftErasure } from "./lift.js";
export { lastMarked, removeMarkers } from "./lift.sql.js";
export { isLeft, placesAsText } from "./places.js";
export { createErasureStatus, erasureAsJson } from "./status.grpc.js";

interface Handles {
  readonly state: Pick<State, "erasure" | "streams" | "fences" | "erased" | "authorStates">;
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly upstreams: Pick<Upstreams, "dropsByUser">;
  /** Resolves to when the oldest event that is not applied yet was admitted, in ms since the epoch. */
  readonly readBacklogStart: () => Promise<number>;
}

export function createForgetTimelines({ state, nats, publish, upstreams, readBacklogStart }: Handles): Forget {
  const { erasure, streams, fences, erased, authorStates } = state;
  return createForget({
    ...erasure,
    ...createMessages(nats, publish, streams.notifyUser),
    reports: erased.reports,
    fences,
    leavePulled: authorStates.forget,
    readBacklogStart,
    async *drops(user) {
      yield* listedDrops(upstreams, user);
      yield await erasure.readStored(user);
    },
  });
}

interface VerifyHandles {
  readonly state: Pick<State, "erasure">;
  readonly nats: NatsConnection;
  /** Without it no table is read. */
  readonly db: Queries | undefined;
}

/** Finds every place where a user is named, and changes nothing. `progress` is told what is read now. */
export async function verifyErasure(
  { state, nats, db }: VerifyHandles,
  user: string,
  progress: (text: string) => void = () => undefined,
): Promise<Place[]> {
  const [person, places] = [personOf(user), createPlaces()];
  if (db) await verifyTables(db, person, places, (table) => progress(`PostgreSQL: ${table}`));
  await state.erasure.verify(person, { add: places.add, checked: (keys) => progress(`Redis: ${keys} keys`) });
  await verifyStreams(nats, person, places, (stream, count) => progress(`NATS: ${count} messages of ${stream}`));
  return places.all();
}
