import { armFailpoints } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import { type HttpServer, serveHttp } from "../platform/http/serve.js";
import { createLogger } from "../platform/logger.js";
import type { Telemetry } from "../platform/telemetry.js";
import { startBridgeRole } from "./bridge-role.js";
import type { Closers } from "./closers.js";
import type { Config, Role } from "./config.js";
import { openConnections } from "./connections.js";
import { startDepths } from "./depths.js";
import { startGatewayRole } from "./gateway-role.js";
import { type RoleDeps, type RunningRole, startApiRole, startFanoutRole } from "./roles.js";
import { VERSION } from "./version.js";

/** A running process of the service. */
export interface RunningService {
  readonly log: Logger;
  readonly http: HttpServer;
  /** Undefined without the role api. */
  readonly grpcPort: number | undefined;
  readonly ready: () => boolean;
  close(): Promise<void>;
}

type Start = (deps: RoleDeps, http: HttpServer) => Promise<RunningRole & { readonly port?: number }>;

const STARTS: Readonly<Record<Role, Start>> = {
  bridge: startBridgeRole,
  fanout: startFanoutRole,
  api: startApiRole,
  gateway: startGatewayRole,
};

/** What a process has before its roles. */
export interface StartOptions {
  readonly telemetry: Telemetry;
  /** Closing these gives up a start that still waits. */
  readonly closers: Closers;
  /** Where to log to; unset: standard output. */
  readonly logFile?: string;
}

/**
 * Starts the roles of a process. HTTP is served first, so that `/readyz` says
 * what is waited for; consumers start last.
 */
export async function startService(
  config: Config,
  { closers, telemetry, logFile }: StartOptions,
): Promise<RunningService> {
  const log = createLogger({
    level: config.TIMELINE_LOG_LEVEL,
    fields: { service: "avion-timeline", version: VERSION },
    file: logFile,
  });
  if (config.TIMELINE_FAILPOINTS) {
    armFailpoints(config.TIMELINE_FAILPOINTS);
    log.warn({ points: [...config.TIMELINE_FAILPOINTS.keys()] }, "failpoints are armed: this process is being tested");
  }
  const roles = new Map<Role, RunningRole>();
  let waiting: string | undefined = "start";
  const notReady = (): string[] => [
    ...(waiting === undefined ? [] : [waiting]),
    ...[...roles.values()].flatMap((role) => role.notReady() ?? []),
  ];
  const http = await serveHttp({ address: config.TIMELINE_HTTP_ADDR, notReady, metrics: telemetry.scrape, log });
  closers.add("HTTP", () => http.close(SECOND));
  log.info({ port: http.port, roles: config.TIMELINE_ROLES }, "serving HTTP");
  const connections = await openConnections(config, log, {
    closers,
    waiting: (what) => {
      waiting = what ?? "roles";
    },
  });
  const depths = startDepths(connections.nats);
  closers.add("depths", () => depths.close());
  closers.add("roles", async () => {
    await Promise.all([...roles.values()].map((role) => role.close(config.TIMELINE_SHUTDOWN_GRACE_MS)));
  });
  let grpcPort: number | undefined;
  for (const role of orderOfStart(config.TIMELINE_ROLES)) {
    const running = await STARTS[role]({ config, connections, log }, http);
    roles.set(role, running);
    grpcPort ??= running.port;
  }
  waiting = undefined;
  // Closed first: whoever balances load sends nothing more here.
  closers.add("readiness", () => {
    waiting = "stopping";
  });
  log.info({ roles: config.TIMELINE_ROLES }, "ready");
  return { log, http, grpcPort, ready: () => notReady().length === 0, close: () => closers.closeAll(log) };
}

/** Whoever serves is there before whoever consumes. */
function orderOfStart(roles: readonly Role[]): Role[] {
  return (["api", "gateway", "fanout", "bridge"] as const).filter((role) => roles.includes(role));
}
