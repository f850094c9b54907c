import { createGateway } from "../gateway/gateway.js";
import type { HttpServer } from "../platform/http/serve.js";
import type { RoleDeps, RunningRole } from "./role.js";

/** A key shorter than the hash is weaker than it (RFC 7518, section 3.2). */
const MIN_SECRET_BYTES = 32;

/** Timelines over SSE. */
export async function startGatewayRole({ config, connections, log }: RoleDeps, http: HttpServer): Promise<RunningRole> {
  const secret = config.TIMELINE_JWT_SECRET;
  if (secret !== undefined && Buffer.byteLength(secret) < MIN_SECRET_BYTES)
    log.warn({}, `TIMELINE_JWT_SECRET is shorter than ${MIN_SECRET_BYTES} bytes: tokens of others could be guessed`);
  const gateway = createGateway({
    scripts: connections.scripts,
    nats: connections.nats,
    podName: connections.podName,
    log,
    auth: {
      secret,
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
