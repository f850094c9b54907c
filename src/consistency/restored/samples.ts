import type { HeldDrop } from "../../contracts/timelines.js";
import { sharedNow } from "../../kernel/time.js";
import { type EdgeChange, edgeName, type State } from "../../state/index.js";

/** Number of drops in a sample of local. */
const NEWEST = 40;

interface SamplesDeps {
  readonly state: State;
  readonly readDrops: (until: number) => Promise<readonly HeldDrop[]>;
  readonly readEdges: (until: number) => Promise<readonly EdgeChange[]>;
  readonly settleMs: number;
}

export type Samples = ReturnType<typeof createSamples>;

/** Takes samples of the log and local, without deleted drops and those older than the retention. */
export function createSamples({ state, readDrops, readEdges, settleMs }: SamplesDeps) {
  const { fences, erased, local } = state;
  /** The upstreams do not know erased users any more. */
  const withoutErased = async <Item>(items: readonly Item[], usersOf: (item: Item) => readonly string[]) => {
    const gone = await erased.among([...new Set(items.flatMap(usersOf))]);
    return items.filter((item) => !usersOf(item).some((user) => gone.has(user)));
  };
  const alive = async (drops: readonly HeldDrop[]): Promise<readonly HeldDrop[]> => {
    const tombstoned = await fences.tombstonedAmong(drops.map(({ drop }) => drop));
    const since = fences.retentionStart();
    return drops.filter(({ drop, createdAt }) => !tombstoned.has(drop) && createdAt >= since);
  };
  const inForce = async (edges: readonly EdgeChange[]): Promise<readonly EdgeChange[]> => {
    // -1 is below every version: an edge that was undone has a lower one than the change that is asked about.
    const newest = await fences.newestEdges(edges.map((edge) => ({ ...edge, version: -1 })));
    return edges.map((edge, index) => ({ ...edge, ...newest[index] }));
  };
  return {
    /** Returns the newest settled drops of the log and some older ones, in the order of admission. */
    drops: async () => {
      const drops = await readDrops(sharedNow() - settleMs);
      return alive(await withoutErased(drops, ({ author }) => (author === undefined ? [] : [author])));
    },
    /** Returns the newest follows of the log, each with the version in force. */
    edges: async () => {
      const read = await readEdges(sharedNow() - settleMs);
      const edges = await withoutErased(read, ({ follower, following }) => [follower, following]);
      // The last message of an edge is the one that a restore may have lost.
      return inForce([...new Map(edges.map((edge) => [edgeName(edge), edge])).values()]);
    },
    inForce,
    /** Returns the newest drops of local, oldest first; they may be in no log any more. */
    local: async () => alive(await local.newest({ until: sharedNow() - settleMs, count: NEWEST })),
    /** Returns the drops of a sample that are neither deleted nor removed since. */
    stillHeld: async (drops: readonly HeldDrop[]): Promise<readonly HeldDrop[]> => {
      const kept = await alive(drops);
      const inLocal = await local.among(kept.map(({ drop }) => drop));
      return kept.filter(({ author, drop }) => author !== undefined || inLocal.has(drop));
    },
  };
}
