import { LOCAL_KEY } from "../../contracts/keys.js";
import { FLOOR_MEMBER } from "../../kernel/ids.js";
import { sharedNow } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { EdgeChange, Fences } from "../../records/fences.js";
import type { HeldDrop } from "./judge.js";
import type { Samples } from "./watch.js";

const NEWEST = 40;

interface SamplesDeps {
  readonly scripts: Pick<Scripts, "command">;
  readonly fences: Pick<Fences, "tombstonedAmong" | "retentionStart" | "newestEdges">;
  readonly readDrops: (until: number) => Promise<readonly HeldDrop[]>;
  readonly readEdges: (until: number) => Promise<readonly EdgeChange[]>;
  readonly settleMs: number;
}

export function createSamples({ scripts, fences, readDrops, readEdges, settleMs }: SamplesDeps): Samples {
  const { command } = scripts;
  const alive = async (drops: readonly HeldDrop[]): Promise<readonly HeldDrop[]> => {
    const tombstoned = await fences.tombstonedAmong(drops.map(({ drop }) => drop));
    const since = fences.retentionStart();
    return drops.filter(({ drop, createdAt }) => !tombstoned.has(drop) && createdAt >= since);
  };
  const scoresOf = (drops: readonly HeldDrop[]) =>
    command("zmscore", (client) => client.zmscore(LOCAL_KEY, ...drops.map(({ drop }) => drop)));
  const inForce = async (edges: readonly EdgeChange[]): Promise<readonly EdgeChange[]> => {
    // -1 is below every version: an edge that was undone has a lower one than the change that is asked about.
    const newest = await fences.newestEdges(edges.map((edge) => ({ ...edge, version: -1 })));
    return edges.map((edge, at) => ({ ...edge, ...newest[at] }));
  };
  return {
    drops: async () => alive(await readDrops(sharedNow() - settleMs)),
    edges: async () => {
      const edges = await readEdges(sharedNow() - settleMs);
      // The last message of an edge is the one that a restore may have lost.
      return inForce([...new Map(edges.map((edge) => [keyOf(edge), edge])).values()]);
    },
    inForce,
    local: async () => alive(await readNewestLocal(scripts, sharedNow() - settleMs)),
    stillHeld: async (drops) => {
      const held = await alive(drops);
      const scores = held.length === 0 ? [] : await scoresOf(held);
      return held.filter(({ author }, at) => author !== undefined || scores[at] != null);
    },
  };
}

const keyOf = ({ follower, following }: EdgeChange): string => JSON.stringify([follower, following]);

async function readNewestLocal({ command }: Pick<Scripts, "command">, until: number): Promise<HeldDrop[]> {
  const flat = await command("zrevrangebyscore", (client) =>
    client.zrevrangebyscore(LOCAL_KEY, until, 0, "WITHSCORES", "LIMIT", 0, NEWEST),
  );
  const drops: HeldDrop[] = [];
  for (let at = 0; at < flat.length; at += 2)
    if (flat[at] !== FLOOR_MEMBER) drops.unshift({ drop: flat[at] as string, createdAt: Number(flat[at + 1]) });
  return drops;
}
