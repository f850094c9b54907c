import type { NatsConnection } from "nats";
import { isListPosition, MOST_LISTS } from "../contracts/positions.js";
import type { Position } from "../gen/avion/timeline.js";
import { AppError } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import { sharedNow } from "../kernel/time.js";
import { createBucket } from "../platform/nats/bucket.js";
import type { Publish } from "../platform/nats/publish.js";

/** The value of a user's key: positions by their timelines. */
type Stored = Readonly<Record<string, Omit<Position, "timeline">>>;

/** Devices of a user that set positions at the same moment. */
const MAX_ROUNDS = 8;

export type PositionStore = ReturnType<typeof createPositionStore>;

/** Keeps positions in the bucket POSITIONS, one key a user. Everything rejects with AppError `unavailable`. */
export function createPositionStore({ nats, publish }: { readonly nats: NatsConnection; readonly publish: Publish }) {
  const bucket = createBucket(nats, publish, "POSITIONS");
  const read = async (user: string) => {
    const entry = await bucket.get(encodeId(user));
    return { revision: entry?.revision ?? 0, stored: (entry?.value ?? {}) as Stored };
  };
  return {
    all: async (user: string): Promise<Position[]> =>
      Object.entries((await read(user)).stored).map(([timeline, position]) => ({ timeline, ...position })),
    of: async (user: string, timeline: string): Promise<string | undefined> =>
      (await read(user)).stored[timeline]?.drop_id,
    /** @throws AppError `conflict` if a newer position, or another of the same version, stands */
    async set(user: string, { timeline, drop_id, version }: Omit<Position, "updated_at">): Promise<Position> {
      for (let round = 0; round < MAX_ROUNDS; round++) {
        const { revision, stored } = await read(user);
        const stands = stored[timeline];
        if (stands?.version === version && stands.drop_id === drop_id) return { timeline, ...stands };
        if (stands && stands.version >= version)
          throw new AppError("conflict", `version: ${stands.version} stands, at the drop ${stands.drop_id}`);
        const position = { drop_id, version, updated_at: sharedNow() };
        const kept = withoutOldest({ ...stored, [timeline]: position });
        if (await bucket.replace(encodeId(user), kept, revision)) return { timeline, ...position };
      }
      throw new AppError("unavailable", "the positions of the user change faster than they can be stored");
    },
    remove: (user: string): Promise<void> => bucket.purge(encodeId(user)),
  };
}

/** Nobody removes the position in a list that was deleted. */
function withoutOldest(positions: Stored): Stored {
  const lists = Object.entries(positions).filter(([timeline]) => isListPosition(timeline));
  if (lists.length <= MOST_LISTS) return positions;
  const oldest = lists.reduce((a, b) => (b[1].updated_at < a[1].updated_at ? b : a))[0];
  return Object.fromEntries(Object.entries(positions).filter(([timeline]) => timeline !== oldest));
}
