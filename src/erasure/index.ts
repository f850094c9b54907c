import type { NatsConnection } from "nats";
import type { Queries } from "../platform/db/db.js";
import type { Publish } from "../platform/nats/publish.js";
import type { RedisClock } from "../platform/redis/clock.js";
import type { Scripts } from "../platform/redis/scripts.js";
import {
  createNotifyUser,
  createPlaces,
  createSend,
  createWalk,
  type Erased,
  type Fences,
  type Forget,
  type Place,
  personOf,
  readOwnDrops,
  readStoredDrops,
  verifyKeys,
} from "../state/index.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";
import { listedDrops } from "./drops.grpc.js";
import { createForget, type ForgetDeps } from "./forget.js";
import { createMessages } from "./messages.nats.js";
import { verifyStreams } from "./verify-streams.nats.js";
import { verifyTables } from "./verify-tables.sql.js";

export { isLeft, type Place, placesAsText } from "../state/index.js";
export { liftErasure } from "./lift.js";
export { lastMarked, removeMarkers } from "./lift.sql.js";
export { createErasureStatus, erasureAsJson } from "./status.grpc.js";

interface Handles {
  readonly scripts: Scripts;
  readonly clock: Pick<RedisClock, "now">;
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly upstreams: Pick<Upstreams, "dropsByUser">;
  readonly fences: Fences;
  readonly erased: Pick<Erased, "reports">;
}

export function createForgetTimelines(
  { scripts, clock, nats, publish, upstreams, fences, erased: { reports } }: Handles,
  pulled: Pick<ForgetDeps, "leavePulled" | "readBacklogStart">,
): Forget {
  const send = createSend(scripts);
  async function* drops(user: string): AsyncGenerator<readonly string[]> {
    yield* listedDrops(upstreams, user);
    yield await readStoredDrops(send, user);
  }
  return createForget({
    ...pulled,
    ...createMessages(nats, publish, createNotifyUser({ publish, scripts, clock })),
    ...createWalk(scripts),
    reports,
    fences,
    drops,
    readOwn: (users) => readOwnDrops(send, users),
  });
}

interface VerifyHandles {
  readonly scripts: Scripts;
  readonly nats: NatsConnection;
  /** Without it no table is read. */
  readonly db: Queries | undefined;
}

/** Finds every place where a user is named, and changes nothing. `progress` is told what is read now. */
export async function verifyErasure(
  { scripts, nats, db }: VerifyHandles,
  user: string,
  progress: (text: string) => void = () => undefined,
): Promise<Place[]> {
  const [person, places] = [personOf(user), createPlaces()];
  if (db) await verifyTables(db, person, places, (table) => progress(`PostgreSQL: ${table}`));
  await verifyKeys(scripts, person, places, (keys) => progress(`Redis: ${keys} keys`));
  await verifyStreams(nats, person, places, (stream, count) => progress(`NATS: ${count} messages of ${stream}`));
  return places.all();
}
