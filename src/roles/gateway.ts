import { createAnalysisApi } from "../analysis/index.js";
import { createEntrance, createGateway, LIMITS } from "../gateway/index.js";
import type { Logger } from "../kernel/logger.js";
import type { Db } from "../platform/db/db.js";
import type { HttpServer } from "../platform/http/serve.js";
import { createRewardStore } from "../rewards/index.js";
import type { Config } from "./config/config.js";
import { missingUpstreams } from "./connections.js";
import type { RoleDeps, RunningRole } from "./role.js";

export interface GatewayRoleDeps extends RoleDeps {
  readonly db: Db | undefined;
  readonly http: HttpServer;
  readonly entrance: ReturnType<typeof openEntrance>;
}

/** The entrance opens before the connections: who asks for a stream meanwhile comes back. */
export function openEntrance({ gateway }: Config, http: HttpServer, log: Logger) {
  const entrance = createEntrance({ config: gateway, log });
  http.handle(entrance.handle);
  return entrance;
}

export async function startGatewayRole(deps: GatewayRoleDeps): Promise<RunningRole> {
  const { config, connections, db, http, entrance, wraps, log } = deps;
  if (config.gateway.allowUnsafeTokens)
    log.warn({}, "TIMELINE_JWT_ALLOW_UNSAFE is set: tokens that others made may be accepted");
  const gateway = createGateway(
    { ...connections, entrance, config: config.gateway, log },
    { ...LIMITS, ...wraps?.limits?.gateway },
  );
  const upstreams = missingUpstreams(config.upstreams).length > 0 ? undefined : connections.upstreams("gateway");
  http.use(
    createAnalysisApi({
      ...connections,
      upstreams,
      ...{ authorize: entrance.authorize, allowedOrigins: config.gateway.allowedOrigins },
      connected: () => connections.topology.connected,
      ...{ db, rewards: db && createRewardStore(db), log },
    }),
  );
  return {
    notReady: () => {
      const keys = entrance.keysNotReady();
      return gateway.healthy() ? keys && `gateway: ${keys}` : "gateway: Redis or NATS is unavailable";
    },
    close: (graceMs) => {
      http.stopListening();
      return gateway.close(graceMs);
    },
  };
}
