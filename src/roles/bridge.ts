import { startBridge } from "../bridge/bridge.js";
import { createChannels } from "../bridge/channels.redis.js";
import { createForward } from "../bridge/forward.js";
import { Gaps } from "../bridge/gaps.js";
import { createHeldLetters } from "../bridge/held-letters.js";
import { observeBridge } from "../bridge/observe.js";
import { startReconcileRequests } from "../consistency/index.js";
import { refusalOf } from "../platform/nats/publish.js";
import { connectSubscriber } from "../platform/redis/connect.js";
import { missingUpstreams } from "./connections.js";
import { deadLettersTo } from "./consumers.js";
import type { RoleDeps, RunningRole } from "./role.js";
import { VERSION } from "./version.js";

/** Bytes of a message that are not its payload: headers, above all those of a dead letter. */
const HEADER_ROOM = 16 * 1024;

/** Redis Pub/Sub into JetStream. */
export async function startBridgeRole(deps: RoleDeps): Promise<RunningRole> {
  const { config, connections, log } = deps;
  const { nats, publish } = connections;
  const subscriber = connectSubscriber(config.redis.urls, log);
  const upstreamsMissing = missingUpstreams(config.upstreams).length > 0;
  if (upstreamsMissing)
    log.warn({}, "without UserService and PostService a bridge cannot look up what Redis Pub/Sub has lost");
  const requests = startReconcileRequests({ ...connections, log }, { canReconcile: !upstreamsMissing });
  const gaps = new Gaps();
  const letters = createHeldLetters({
    store: deadLettersTo(publish),
    isRefusal: (error) => refusalOf(error) !== undefined,
    log,
  });
  const forward = createForward({
    admit: publish,
    letters,
    maxPayloadBytes: () => (nats.info?.max_payload ?? 1024 * 1024) - HEADER_ROOM,
    numbered: (producer, seq) => {
      const since = gaps.note(producer, seq, Date.now());
      if (since !== undefined) requests.request(since, "gap");
    },
    version: VERSION,
    log,
    observe: observeBridge.forwarded,
  });
  observeBridge.started();
  const channels = createChannels(subscriber, log);
  const bridge = await startBridge({ channels, forward, suspect: requests.request, log, observe: observeBridge });
  await requests.requestSinceLastEvent();
  return {
    notReady: () => (bridge.healthy() ? letters.notReady() : "bridge: Redis Pub/Sub is not subscribed"),
    close: async (graceMs) => {
      await requests.close();
      await bridge.close(graceMs);
      await letters.close(graceMs);
      subscriber.disconnect();
    },
  };
}
