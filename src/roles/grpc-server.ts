import type { Logger } from "../kernel/logger.js";
import { type GrpcServer, type Service, serveGrpc } from "../platform/grpc/serve.js";
import type { Config } from "./config/config.js";

/** Changes services on their way to the server; a sandbox breaks them so. */
export type WrapService = (service: Service) => Service;

/** Serves what the roles of this process have to serve; undefined where that is nothing. */
export async function serveRoles(
  config: Config["grpcServer"],
  services: readonly Service[],
  log: Logger,
): Promise<GrpcServer | undefined> {
  if (services.length === 0) return undefined;
  const server = await serveGrpc(config.address, services, {
    ca: config.ca,
    cert: config.cert,
    key: config.key,
  });
  server.setServing(true);
  log.info({ port: server.port, services: services.map(({ name }) => name) }, "serving gRPC");
  return server;
}
