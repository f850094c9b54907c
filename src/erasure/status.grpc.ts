import type { ErasureShown } from "../contracts/tables.js";
import type { Erasure } from "../gen/avion/users.js";
import { mapLimited } from "../kernel/concurrency.js";
import type { State } from "../state/index.js";
import { isNotFound, isUnimplemented, type Users } from "../upstreams/upstreams.grpc.js";

const AT_ONCE = 8;

/** `service` is undefined if its address is not configured. */
export function createErasureStatus(erased: State["erasedList"], service: Pick<Users, "erasure"> | undefined) {
  /** A users service that knows no erasure has published the event itself: then the reports of the roles tell the state. */
  const show = async (user: string): Promise<ErasureShown> => {
    const known = await service?.erasure(user).catch((error: unknown) => {
      if (isNotFound(error) || isUnimplemented(error)) return undefined;
      throw error;
    });
    if (known) return erasureAsJson(user, known);
    if (!(await erased.isErased(user))) {
      const lifted = await erased.lifted(user);
      const none = erasureAsJson(user, undefined);
      if (lifted === undefined) return none;
      return { ...none, status: "lifted", lifted_at: new Date(lifted.at).toISOString(), reason: lifted.reason };
    }
    const steps = [...(await erased.reports(user))].map(([name, report]) => ({ name, ...report }));
    const status = steps.every(({ done }) => done) ? "completed" : "running";
    return { ...erasureAsJson(user, undefined), status, steps };
  };
  return {
    /** The status is `none` for a user who was never erased, and `lifted` for one who is not erased any more. */
    show,
    /** Resolves to at most `limit` erasures, the newest first. */
    list: async (limit: number) => mapLimited((await erased.users()).slice(0, limit), AT_ONCE, (user) => show(user)),
  };
}

const dateOf = (ms: number): string | null => (ms === 0 ? null : new Date(ms).toISOString());

export const erasureAsJson = (user_id: string, erasure: Erasure | undefined): ErasureShown => ({
  user_id,
  status: erasure?.status ?? "none",
  requested_at: dateOf(erasure?.requested_at ?? 0),
  completed_at: dateOf(erasure?.completed_at ?? 0),
  steps: erasure?.steps ?? [],
});
