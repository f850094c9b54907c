import type { NatsConnection } from "nats";
import type { Logger } from "../../kernel/logger.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { createFenceStore, createFences, createRetention, type Erased, type Fenced } from "../../state/index.js";
import type { Upstreams } from "../../upstreams/upstreams.grpc.js";
import { EventLog } from "../log.nats.js";
import { UpstreamView } from "../upstreams.grpc.js";
import { eventsWithoutErased } from "../without-erased.js";

interface Handles {
  readonly scripts: Scripts;
  readonly fenced: Fenced;
  readonly nats: NatsConnection;
  readonly upstreams: (caller: "operator") => Upstreams;
  readonly erased: Erased;
  readonly log: Logger;
}

/** Opens the fences, and the retention time they use once it is refreshed or followed. */
export function openFences({ scripts, fenced, nats, upstreams, erased, log }: Handles) {
  const retention = createRetention(() => new UpstreamView(upstreams("operator")).readRetentionStart(), log);
  const store = createFenceStore(scripts, fenced);
  const eventLog = new EventLog(nats);
  const readHistory = () => eventsWithoutErased(erased, eventLog.readHistory());
  return { fences: createFences({ store, readHistory, retentionStart: retention.retentionStart, log }), retention };
}
