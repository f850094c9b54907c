import { type Fences, nameGeneration } from "../../contracts/fences.js";
import { AppError } from "../../kernel/errors.js";
import { SingleFlight } from "../../kernel/single-flight.js";
import type { FenceStore } from "./ports.js";
import { type RefillDeps, refill } from "./refill.js";

interface FencesDeps extends RefillDeps {
  /** See `retention.ts`; unset: no drop goes for its age. */
  readonly retentionStart?: () => number;
}

/** Makes the fences. Whatever was lost is refilled before anything is decided by it. */
export function createFences(deps: FencesDeps): Fences {
  const { store, retentionStart = () => 0 } = deps;
  const flight = new SingleFlight<void>();
  const ensure = (): Promise<void> => flight.run("refill", () => refill(deps));
  const certain = async <T>(ask: (store: FenceStore) => Promise<T | undefined>): Promise<T> => {
    const answer = await ask(store);
    if (answer !== undefined) return answer;
    await ensure();
    const again = await ask(store);
    if (again !== undefined) return again;
    throw new AppError("unavailable", "the fences were lost again after they were refilled");
  };
  return {
    retentionStart,
    async recordTombstone(drop, time) {
      const { complete } = await store.recordTombstones([{ drop, time }]);
      if (!complete) await ensure();
    },
    async tombstonedAmong(drops) {
      if (drops.length === 0) return new Set();
      return certain(async () => {
        const { dead, complete } = await store.tombstonedAmong(drops);
        return complete ? dead : undefined;
      });
    },
    changeEdge: (change) => certain(() => store.changeEdge(change)),
    unfollowedAmong: async (author, users) =>
      users.length === 0 ? [] : certain(() => store.unfollowedAmong(author, users)),
    async *recentUnfollowers(author, since) {
      for (let from: number | undefined = since; from !== undefined; ) {
        const start: number = from;
        const { users, next } = await certain(() => store.recentUnfollowers(author, start));
        if (users.length > 0) yield users;
        from = next;
      }
    },
    generation: (author) => store.generation(author, nameGeneration()),
    renewGeneration: (author) => store.setGeneration(author, nameGeneration()),
  };
}
