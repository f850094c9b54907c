import { startBridge, watchNeighbours } from "../bridge/index.js";
import { EventLog, startReconcileRequests } from "../consistency/index.js";
import { VERSION } from "../kernel/version.js";
import { connectSubscriber } from "../platform/redis/connect.js";
import { missingUpstreams } from "./connections.js";
import type { RoleDeps, RunningRole } from "./role.js";

export async function startBridgeRole({ config, connections, exportsTraces, log }: RoleDeps): Promise<RunningRole> {
  const subscriber = connectSubscriber(config.redis.urls, log, connections.redis);
  const upstreamsMissing = missingUpstreams(config.upstreams).length > 0;
  if (upstreamsMissing)
    log.warn({}, "without UserService and PostService a bridge cannot look up what Redis Pub/Sub has lost");
  const requests = startReconcileRequests({ ...connections, log }, { canReconcile: !upstreamsMissing });
  // The last admission is read before the bridge starts: what it admits would hide since when none ran.
  const eventLog = new EventLog(connections.nats);
  const last = await eventLog.readLastAdmission();
  const { channelPrefix } = config.redis;
  const neighbours = watchNeighbours({
    subscriber,
    publisher: connections.redis,
    channelPrefix,
    process: connections.podName,
    readLog: eventLog.readRedis,
    log,
  });
  const bridge = await startBridge({
    ...connections,
    namesErased: connections.state.namesErased,
    subscriber,
    channelPrefix,
    neighbours,
    requestReconcile: requests.request,
    version: VERSION,
    exportsTraces,
    log,
  });
  if (last !== undefined) requests.request(last, "start");
  return {
    notReady: bridge.notReady,
    close: async (graceMs) => {
      await requests.close();
      await bridge.close(graceMs);
      subscriber.disconnect();
    },
  };
}
