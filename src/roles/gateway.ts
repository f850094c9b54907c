import { createGateway } from "../gateway/index.js";
import type { HttpServer } from "../platform/http/serve.js";
import type { RoleDeps, RunningRole } from "./role.js";

export async function startGatewayRole({ config, connections, log }: RoleDeps, http: HttpServer): Promise<RunningRole> {
  if (config.gateway.allowUnsafeTokens)
    log.warn({}, "TIMELINE_JWT_ALLOW_UNSAFE is set: tokens that others made may be accepted");
  const gateway = createGateway({
    scripts: connections.scripts,
    nats: connections.nats,
    podName: connections.podName,
    log,
    auth: {
      secret: config.gateway.jwtSecret,
      jwksUrl: config.gateway.jwksUrl,
      issuer: config.gateway.jwtIssuer,
      audience: config.gateway.jwtAudience,
    },
    allowedOrigins: config.gateway.allowedOrigins,
    limits: {
      connectionsPerUser: config.gateway.maxConnectionsPerUser,
      connections: config.gateway.maxConnections,
    },
  });
  http.use(gateway.router);
  return {
    notReady: () => (gateway.healthy() ? undefined : "gateway: Redis or NATS is away"),
    close: (graceMs) => gateway.close(graceMs),
  };
}
