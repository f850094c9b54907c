import { startBridge } from "../bridge/bridge.js";
import { createChannels } from "../bridge/channels.redis.js";
import { createForward } from "../bridge/forward.js";
import { Gaps } from "../bridge/gaps.js";
import { createHeldLetters } from "../bridge/held-letters.js";
import { observeBridge } from "../bridge/observe.js";
import { observeReconcile } from "../consistency/reconcile/observe.js";
import { createSuspects, type Suspects } from "../consistency/reconcile/suspects.js";
import { STREAM } from "../contracts/subjects.js";
import { refusalOf } from "../platform/nats/publish.js";
import { connectSubscriber } from "../platform/redis/connect.js";
import { deadLettersTo } from "./consumers.js";
import { createReconciling } from "./reconciling.js";
import type { RoleDeps, RunningRole } from "./role.js";
import { VERSION } from "./version.js";

/** Bytes of a message that are not its payload: headers, above all those of a dead letter. */
const HEADER_ROOM = 16 * 1024;

/** Redis Pub/Sub into JetStream. */
export async function startBridgeRole(deps: RoleDeps): Promise<RunningRole> {
  const { config, connections, log } = deps;
  const { nats, publish } = connections;
  const subscriber = connectSubscriber(config.redis.urls, log);
  const suspects = startSuspects(deps);
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
      if (since !== undefined) suspects.add(since, "gap");
    },
    version: VERSION,
    log,
    observe: observeBridge.forwarded,
  });
  observeBridge.started();
  const channels = createChannels(subscriber, log);
  const bridge = await startBridge({ channels, forward, suspect: suspects.add, log, observe: observeBridge });
  await suspectSinceLastEvent(deps, suspects);
  return {
    notReady: () => (bridge.healthy() ? letters.notReady() : "bridge: Redis Pub/Sub is not subscribed"),
    close: async (graceMs) => {
      await suspects.close();
      await bridge.close(graceMs);
      await letters.close(graceMs);
      subscriber.disconnect();
    },
  };
}

function startSuspects({ config, connections, log }: RoleDeps): Suspects {
  if (config.upstreams.userServiceAddr === undefined || config.upstreams.postServiceAddr === undefined) {
    log.warn({}, "without UserService and PostService a bridge cannot look up what Redis Pub/Sub has lost");
    return { add: observeSuspected, close: async () => undefined };
  }
  return createSuspects({ reconcile: createReconciling(connections, log), log, observe: observeReconcile });
}

const observeSuspected: Suspects["add"] = (_since, cause) => observeReconcile.suspected(cause);

/** While no bridge ran, events were lost: since the last one that was admitted. Where none ever was, none is missed. */
async function suspectSinceLastEvent({ connections: { nats } }: RoleDeps, suspects: Suspects): Promise<void> {
  const { state } = await (await nats.jetstreamManager()).streams.info(STREAM.drops);
  if (state.last_seq > 0) suspects.add(Date.parse(state.last_ts), "start");
}
