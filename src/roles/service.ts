import { Gate } from "../delivery/gate.js";
import type { Logger } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import { type HttpServer, serveHttp } from "../platform/http/serve.js";
import type { TopologyWatch } from "../platform/nats/watch-topology.js";
import { refusalOf } from "../platform/refusals.js";
import type { Telemetry } from "../platform/telemetry.js";
import { startApiRole } from "./api.js";
import { startBridgeRole } from "./bridge.js";
import type { Closers } from "./closers.js";
import type { Config } from "./config/config.js";
import type { Role } from "./config/process.js";
import { openConnections } from "./connections.js";
import { keepsData, openDatabase } from "./database.js";
import { startDepths } from "./depths.js";
import type { EvictionWatch } from "./eviction.js";
import { startFanoutRole } from "./fanout.js";
import { startGatewayRole } from "./gateway.js";
import { serveRoles, type WrapService } from "./grpc-server.js";
import { observeReady } from "./observe.js";
import { startPostsRole } from "./posts.js";
import type { RunningRole, StoringRoleDeps } from "./role.js";
import { startUsersRole } from "./users.js";

/** A running process of the service. */
export interface RunningService {
  readonly log: Logger;
  readonly http: HttpServer;
  /** Undefined without a role that serves gRPC. */
  readonly grpcPort: number | undefined;
  readonly ready: () => boolean;
  close(): Promise<boolean>;
}

type Start = (deps: StoringRoleDeps, http: HttpServer) => Promise<RunningRole>;

const STARTS: Readonly<Record<Role, Start>> = {
  bridge: startBridgeRole,
  fanout: startFanoutRole,
  api: startApiRole,
  gateway: startGatewayRole,
  users: startUsersRole,
  posts: startPostsRole,
};

/** Whoever serves is there before whoever consumes what is served. */
const SERVING: readonly Role[] = ["users", "posts", "api"];
const WORKING: readonly Role[] = ["gateway", "fanout", "bridge"];

/** What a process has before its roles. */
export interface StartOptions {
  readonly telemetry: Telemetry;
  /** Closing these gives up a start that still waits. */
  readonly closers: Closers;
  readonly log: Logger;
  /** Changes what is served over gRPC; unset: nothing. */
  readonly wrapService?: WrapService;
}

/**
 * Starts the roles of a process. HTTP is served first, so that `/readyz` says
 * what is waited for; consumers start last.
 */
export async function startService(
  config: Config,
  { closers, telemetry, log, wrapService = (service) => service }: StartOptions,
): Promise<RunningService> {
  if (config.process.failpoints)
    log.warn({ points: [...config.process.failpoints.keys()] }, "failpoints are armed: this process is being tested");
  const roles: RunningRole[] = [];
  let waiting: string | undefined = "start";
  let topology: TopologyWatch | undefined;
  let eviction: EvictionWatch | undefined;
  // The role api answers from Redis, and those that store from their database, while NATS is away.
  const needsNats = config.process.roles.some((role) => WORKING.includes(role));
  const inUse: object[] = [];
  const notReady = (): string[] => [
    ...inUse.flatMap((connection) => refusalOf(connection)?.message ?? []),
    ...(waiting === undefined ? [] : [waiting]),
    ...(topology && !topology.connected() && needsNats ? ["NATS is away"] : []),
    ...[topology?.fault() ?? []].flat(),
    ...[eviction?.fault() ?? []].flat(),
    ...roles.flatMap((role) => role.notReady() ?? []),
  ];
  observeReady(() => notReady().length === 0);
  const http = await serveHttp({ address: config.process.httpAddress, notReady, metrics: telemetry.scrape, log });
  closers.add("HTTP", () => http.close(SECOND));
  log.info({ port: http.port, roles: config.process.roles }, "serving HTTP");
  const connections = await openConnections(config, log, {
    closers,
    waiting: (what) => {
      waiting = what ?? "roles";
    },
  });
  topology = connections.topology;
  eviction = connections.eviction;
  const depths = await startDepths(connections.nats, { ages: config.process.roles.includes("fanout"), log });
  closers.add("depths", () => depths.close());
  const db = await databaseOf(config, log, closers);
  inUse.push(connections.scripts.client, connections.nats, ...(db ? [db] : []));
  const gate = new Gate();
  const start = async (some: readonly Role[]): Promise<RunningRole[]> => {
    const started: RunningRole[] = [];
    closers.add(some.join(", "), async () => {
      await Promise.all(started.map((role) => role.close(config.process.shutdownGraceMs)));
    });
    for (const role of some.filter((one) => config.process.roles.includes(one))) {
      const running = await STARTS[role]({ config, connections, gate, log, db }, http);
      started.push(running);
      roles.push(running);
    }
    return started;
  };
  const serving = await start(SERVING);
  const services = serving.flatMap((role) => role.services ?? []).map(wrapService);
  const grpc = await serveRoles(config.grpcServer, services, log);
  closers.add("gRPC", () => grpc?.close(config.process.shutdownGraceMs));
  if (config.process.roles.some((role) => role === "fanout" || role === "api")) {
    const following = connections.retention.follow();
    closers.add("retention", () => following.close());
  }
  await start(WORKING);
  waiting = undefined;
  // Closed first: whoever balances load sends nothing more here.
  closers.add("readiness", () => {
    waiting = "stopping";
    grpc?.setServing(false);
  });
  log.info({ roles: config.process.roles }, "ready");
  return { log, http, grpcPort: grpc?.port, ready: () => notReady().length === 0, close: () => closers.closeAll(log) };
}

/** Opened only where a role keeps data in it. */
async function databaseOf(config: Config, log: Logger, closers: Closers): Promise<Db> {
  return keepsData(config.process.roles) ? openDatabase(config.database, log, closers) : (undefined as never);
}
