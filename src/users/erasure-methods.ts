import type { UsersSource } from "../contracts/outbox.js";
import { ERASURE_PARTS } from "../contracts/subjects.js";
import type * as wire from "../gen/avion/users.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { OWN_STEPS } from "./erasures.js";
import type { ErasureStore, StoredErasure } from "./erasures.sql.js";
import { observeUsers } from "./observe.js";

export interface ErasureMethodsDeps {
  readonly erasures: Pick<ErasureStore, "erase" | "get" | "refuseUnknown">;
  readonly wakeRelay: (source: UsersSource) => void;
  readonly wakeErasures: () => void;
  readonly bounded: BoundedQueue;
}

// Each method throws an AppError: `invalid` naming the field, `notfound` if the user is not erased.

export const erasureMethods = ({ erasures, wakeRelay, wakeErasures, bounded }: ErasureMethodsDeps) => {
  const read = async (user: string): Promise<wire.Erasure> => {
    const stored = await bounded(() => erasures.get(user));
    if (stored === undefined) throw new AppError("notfound", "user_id: has no erasure");
    return presented(stored);
  };
  return {
    /** The user may be unknown: the id is refused from then on. */
    async eraseUser({ user_id, only_if_known }: wire.EraseUserRequest): Promise<wire.EraseUserResponse> {
      const user = readId("user_id", user_id);
      const isErased = !only_if_known || (await erasures.refuseUnknown(user));
      if (isErased && (await erasures.erase(user, OWN_STEPS))) {
        observeUsers.erased("requested");
        wakeRelay("users");
        wakeErasures();
      }
      return { erasure: await read(user) };
    },

    async getErasure({ user_id }: wire.GetErasureRequest): Promise<wire.GetErasureResponse> {
      return { erasure: await read(readId("user_id", user_id)) };
    },
  };
};

const ORDER: readonly string[] = [...OWN_STEPS, ...ERASURE_PARTS];

const presented = ({ steps, ...erasure }: StoredErasure): wire.Erasure => ({
  ...erasure,
  status: erasure.completed_at === 0 ? "running" : "completed",
  steps: [...steps].sort((a, b) => ORDER.indexOf(a.name) - ORDER.indexOf(b.name)),
});
