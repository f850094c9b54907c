import { watchForLosses } from "../consistency/index.js";
import { createTimelines } from "../reads/index.js";
import type { RoleDeps, RunningRole } from "./role.js";

/** Serves timelines over gRPC. */
export async function startApiRole({ config, connections, exportsTraces, log }: RoleDeps): Promise<RunningRole> {
  const losses = watchForLosses({ ...connections, log });
  connections.redis.on("close", losses.suspect);
  connections.topology.onPossibleLoss(losses.suspect);
  const readCache = connections.state.openReadCache(config.timeline.readCacheBytes);
  const upstreams = connections.upstreams("reads");
  const timelines = createTimelines({ ...connections, upstreams, readCache, config, log });
  const { maybeLost, affected } = losses;
  let isChecked = false;
  void losses.checked.then(() => {
    isChecked = true;
  });
  return {
    services: [timelines.service({ maybeLost, affected, exportsTraces, publish: connections.publish })],
    notReady: () => (isChecked ? undefined : "api: Redis is being compared with the log"),
    close: async () => {
      await losses.close();
      await readCache?.close();
    },
  };
}
