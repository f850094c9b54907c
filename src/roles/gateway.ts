import { createGateway } from "../gateway/index.js";
import type { HttpServer } from "../platform/http/serve.js";
import type { RoleDeps, RunningRole } from "./role.js";

export async function startGatewayRole({ config, connections, log }: RoleDeps, http: HttpServer): Promise<RunningRole> {
  if (config.TIMELINE_JWT_ALLOW_UNSAFE)
    log.warn({}, "TIMELINE_JWT_ALLOW_UNSAFE is set: tokens that others made may be accepted");
  const gateway = createGateway({
    scripts: connections.scripts,
    nats: connections.nats,
    podName: connections.podName,
    log,
    auth: {
      secret: config.TIMELINE_JWT_SECRET,
      jwksUrl: config.TIMELINE_JWT_JWKS_URL,
      issuer: config.TIMELINE_JWT_ISSUER,
      audience: config.TIMELINE_JWT_AUDIENCE,
    },
    allowedOrigins: config.TIMELINE_ALLOWED_ORIGINS,
    limits: {
      connectionsPerUser: config.TIMELINE_SSE_MAX_CONNECTIONS_PER_USER,
      connections: config.TIMELINE_SSE_MAX_CONNECTIONS,
    },
  });
  http.use(gateway.router);
  return {
    notReady: () => (gateway.healthy() ? undefined : "gateway: Redis or NATS is away"),
    close: (graceMs) => gateway.close(graceMs),
  };
}
