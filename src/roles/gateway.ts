import { createAnalysisApi } from "../analysis/index.js";
import { createGateway } from "../gateway/index.js";
import type { Db } from "../platform/db/db.js";
import type { HttpServer } from "../platform/http/serve.js";
import { createXpReader } from "../rewards/index.js";
import type { RoleDeps, RunningRole } from "./role.js";

export async function startGatewayRole(
  { config, connections, db, log }: RoleDeps<"gateway"> & { readonly db: Db | undefined },
  http: HttpServer,
): Promise<RunningRole> {
  if (config.gateway.allowUnsafeTokens)
    log.warn({}, "TIMELINE_JWT_ALLOW_UNSAFE is set: tokens that others made may be accepted");
  const gateway = createGateway({ ...connections, config: config.gateway, log });
  http.handle(gateway.handle);
  http.use(
    createAnalysisApi({
      ...connections,
      ...{ authorize: gateway.authorize, allowedOrigins: config.gateway.allowedOrigins },
      connected: () => connections.topology.connected,
      ...{ db, rewards: db && createXpReader(db), log },
    }),
  );
  return {
    notReady: () => {
      const keys = gateway.keysNotReady();
      return gateway.healthy() ? keys && `gateway: ${keys}` : "gateway: Redis or NATS is unavailable";
    },
    close: (graceMs) => gateway.close(graceMs),
  };
}
