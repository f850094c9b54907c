import { connect } from "node:http2";
import type { Bench } from "./bench.js";
import { fillReaders, pageOf } from "./big-reads.js";
import { READERS_EACH, readerOf } from "./big-world.js";
import { type Both, cpuOfUnit, endOfTurn, onBoth, type Side } from "./cluster-sides.js";
import { type Cpu, cpuInTurns } from "./measure.js";
import { askedPage, drivePages, encodedPage, openFrames } from "./reads-shared.js";
import { PAGE } from "./workloads.js";

const HOUR_MS = 3_600_000;
/** Of a reader whose page is merged. */
export const PULLED = 20;

export interface PageSizes {
  readonly inFlight: number;
  readonly turns: number | undefined;
}

/** CPU time of a page from the home, of one that is read again, and of one more pulled author in a page. */
export async function pageCosts(
  bench: Bench,
  sides: Both<Side>,
  { inFlight, turns }: PageSizes,
): Promise<Readonly<Record<"home" | "again" | "author", Both<Cpu>>>> {
  const newest = Date.now() - HOUR_MS;
  const { server, cluster } = await onBoth(sides, async (side) => {
    await fillReaders(side.redis, newest, [0, PULLED]);
    const start = async (env: Readonly<Record<string, string>>) => {
      const api = await bench.service(side, { roles: "api", env });
      const session = connect(`http://${api.grpcAddress}`);
      bench.defer(() => session.destroy());
      const call = openFrames(session, "/avion.TimelineService/GetHomeTimeline");
      return (followed: number) => () =>
        cpuOfUnit(side, api, () => drivePages(call, pagesOf(followed, newest), { inFlight, until: endOfTurn() }));
    };
    // There is room for no page, and yet a copy of the tombstones, as where each page is read once.
    const [cached, uncached] = [await start({}), await start({ TIMELINE_READ_CACHE_BYTES: "1" })];
    return { home: uncached(0), again: cached(0), merged: uncached(PULLED) };
  });
  const costs = await cpuInTurns(
    {
      ...{ serverHome: server.home, clusterHome: cluster.home },
      ...{ serverAgain: server.again, clusterAgain: cluster.again },
      ...{ serverMerged: server.merged, clusterMerged: cluster.merged },
    },
    turns,
  );
  return {
    home: { server: costs.serverHome, cluster: costs.clusterHome },
    again: { server: costs.serverAgain, cluster: costs.clusterAgain },
    author: {
      server: authorIn(costs.serverMerged, costs.serverHome),
      cluster: authorIn(costs.clusterMerged, costs.clusterHome),
    },
  };
}

const pagesOf = (followed: number, newest: number) => {
  const expected = encodedPage(pageOf(followed, newest, PAGE));
  return Array.from({ length: READERS_EACH }, (_, n) => askedPage(readerOf(followed, n), expected, PAGE));
};

const authorIn = (merged: Cpu, home: Cpu): Cpu =>
  Object.fromEntries(Object.entries(merged).map(([name, spent]) => [name, (spent - (home[name] as number)) / PULLED]));
