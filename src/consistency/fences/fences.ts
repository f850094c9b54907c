import { type Ledger, nameGeneration } from "../../contracts/ledger.js";
import { AppError } from "../../kernel/errors.js";
import { SingleFlight } from "../../kernel/single-flight.js";
import type { LedgerStore } from "./ports.js";
import { type RefillDeps, refill } from "./refill.js";

interface LedgerDeps extends RefillDeps {
  /** See `retention.ts`; unset: no drop goes for its age. */
  readonly keptSince?: () => number;
}

/** Makes the ledger. Whatever was lost is refilled before anything is decided by it. */
export function createLedger(deps: LedgerDeps): Ledger {
  const { store, keptSince = () => 0 } = deps;
  const flight = new SingleFlight<void>();
  const ensure = (): Promise<void> => flight.run("refill", () => refill(deps));
  const certain = async <T>(ask: (store: LedgerStore) => Promise<T | undefined>): Promise<T> => {
    const answer = await ask(store);
    if (answer !== undefined) return answer;
    await ensure();
    const again = await ask(store);
    if (again !== undefined) return again;
    throw new AppError("unavailable", "the ledger was lost again after it was refilled");
  };
  return {
    keptSince,
    async bury(drop, time) {
      const { complete } = await store.bury([{ drop, time }]);
      if (!complete) await ensure();
    },
    async deadAmong(drops) {
      if (drops.length === 0) return new Set();
      return certain(async () => {
        const { dead, complete } = await store.deadAmong(drops);
        return complete ? dead : undefined;
      });
    },
    changeEdge: (change) => certain(() => store.changeEdge(change)),
    leftAmong: async (author, users) => (users.length === 0 ? [] : certain(() => store.leftAmong(author, users))),
    async *leavers(author, since) {
      for (let from: number | undefined = since; from !== undefined; ) {
        const start: number = from;
        const { users, next } = await certain(() => store.leavers(author, start));
        if (users.length > 0) yield users;
        from = next;
      }
    },
    generation: (author) => store.generation(author, nameGeneration()),
    renewGeneration: (author) => store.setGeneration(author, nameGeneration()),
  };
}
