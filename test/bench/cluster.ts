import type { Bench } from "./support/bench.js";
import { clusterCosts, ENTRIES } from "./support/cluster-costs.js";
import { PULLED } from "./support/cluster-pages.js";
import type { Both } from "./support/cluster-sides.js";
import { type Cpu, MIDDLE_TURNS, TURNS } from "./support/measure.js";
import type { Parameters, Result, Row } from "./support/result.js";
import { PAGE } from "./support/workloads.js";

const TARGETS = { redisEntry: 1.3, workerEntry: 2, page: 1.3, author: 1.5 };

const ABOUT = `A Redis Cluster of three masters against one server, in turns; figures are means of the middle ${MIDDLE_TURNS} of ${TURNS} turns. CPU of Redis is that of all
masters together. All have an append-only file that is synced every second and never rewritten, and no snapshots.

- Drops to full homes by one worker that knows the followers already. Authors have no follower in common; a batch holds one drop of each.
- First pages of ${PAGE} from homes of ${ENTRIES.toLocaleString("en")}. Nothing is cached, except for "read again". One more author: a ${PULLED}th of what readers of ${PULLED}
  pulled authors cost more than readers of none.`;

export async function run(parameters: Parameters, bench: Bench): Promise<Result> {
  const { entries, home, again, author } = await clusterCosts(parameters, bench);
  const ofEntries = entries.flatMap(([{ followers }, costs]) => {
    const name = `an entry, ${followers.toLocaleString("en")} followers`;
    return [
      rowOf(`${name}: CPU of Redis`, ofRedis(costs), TARGETS.redisEntry),
      rowOf(`${name}: CPU of the worker`, ofService(costs), TARGETS.workerEntry),
    ];
  });
  const rows = [
    ...ofEntries,
    rowOf("a page: CPU of Redis", ofRedis(home), TARGETS.page),
    rowOf("a page: CPU of `api`", ofService(home), TARGETS.page),
    rowOf("a page that is read again: CPU of `api`", ofService(again)),
    rowOf("one more author in a page: CPU of Redis", ofRedis(author), TARGETS.author),
    rowOf("one more author in a page: CPU of Redis and `api`", ofAll(author), TARGETS.author),
  ];
  return { about: ABOUT, rows };
}

function rowOf(name: string, { server, cluster }: Both<number>, atMost?: number): Row {
  const compared = { value: cluster, unit: "µs", peer: { name: "one server", value: server } };
  return { name, ...compared, ...(atMost !== undefined && { target: { atMost } }) };
}

const ofBoth =
  (of: (cpu: Cpu) => number) =>
  ({ server, cluster }: Both<Cpu>): Both<number> => ({ server: of(server), cluster: of(cluster) });

const ofRedis = ofBoth((cpu) => cpu["redis"] as number);
const ofService = ofBoth((cpu) => cpu["service"] as number);
const ofAll = ofBoth((cpu) => Object.values(cpu).reduce((sum, spent) => sum + spent, 0));
