import { SuspectLock } from "../delivery/process.js";
import type { Logger } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import { checkTls } from "../platform/grpc/credentials.js";
import { type GrpcServer, serveGrpc } from "../platform/grpc/serve.js";
import type { Service } from "../platform/grpc/unary.js";
import { type HttpServer, serveHttp } from "../platform/http/serve.js";
import { startDepths } from "../platform/nats/depths.js";
import { refusalOf } from "../platform/refusals.js";
import type { Telemetry } from "../telemetry/exporters.js";
import { observedGauge } from "../telemetry/meters.js";
import { startAnalysisRole } from "./analysis.js";
import { startApiRole } from "./api.js";
import { startBridgeRole } from "./bridge.js";
import { startCertificateSample } from "./certificates.js";
import type { Closers } from "./closers.js";
import { type Config, calledUpstreams } from "./config/config.js";
import type { Role } from "./config/process.js";
import { openConnections, retryUntilDone, type ServiceConnections } from "./connections.js";
import { keepsData, openDatabase } from "./database.js";
import { startFanoutRole } from "./fanout.js";
import { type GatewayRoleDeps, openEntrance, startGatewayRole } from "./gateway.js";
import { listening } from "./listening.js";
import { startNotificationsRole } from "./notifications.js";
import { startOpsRole } from "./ops.js";
import { startPostsRole } from "./posts.js";
import { startRewardsRole } from "./rewards.js";
import type { RoleDeps, RunningRole, StoringRoleDeps, Wraps } from "./role.js";
import { startUsersRole } from "./users.js";

export interface RunningService {
  readonly http: HttpServer;
}

/** The options are made before the roles are loaded; closing `closers` ends a start that still waits. */
export interface StartOptions {
  readonly telemetry: Telemetry;
  readonly closers: Closers;
  readonly log: Logger;
  readonly wraps?: Wraps;
}

/** A role that serves starts before a role that may call it, and closes after it. */
const SERVING: readonly Role[] = ["users", "posts", "notifications", "api"];
const WORKING: readonly Role[] = ["gateway", "fanout", "bridge", "analysis", "rewards", "ops"];

/** Roles that read timelines, and so follow the retention and the pulled authors. */
const READING: readonly Role[] = ["fanout", "api", "ops"];

/** Starts the roles of a process. HTTP is served first, so that `/readyz` can say what is waited for. */
export async function startService(config: Config, options: StartOptions): Promise<RunningService> {
  const { closers, log, wraps } = options;
  const { roles } = config.process;
  const readiness = new Readiness(roles);
  const http = await openHttp(config, options, readiness);
  const certificates = startCertificateSample(config, log);
  closers.add("certificates", () => certificates.close());
  const entrance = roles.includes("gateway") ? openEntrance(config, http, log) : undefined;
  const deps = { ...(await openDeps(config, options, readiness)), http, entrance } as AnyRoleDeps;
  const { state } = deps.connections;
  // A process that knows no standings would accept writes of the suspended.
  await retryUntilDone(state.standings.refresh, log, "standings cannot be read yet; the start waits");
  const standings = state.standings.follow(log);
  closers.add("standings", () => standings.close());
  const start = createStart(deps, closers, readiness);
  const serving = await start(SERVING);
  const services = serving.flatMap((role) => role.services ?? []);
  const grpc = await openGrpc(
    config.grpcServer,
    services.map((service) => wraps?.service?.(service) ?? service),
    log,
  );
  closers.add("gRPC", (graceMs) => grpc?.close(graceMs));
  // Upstreams are checked only now, since this process may serve one itself.
  await Promise.all(calledUpstreams(config).map((upstream) => checkTls(upstream, config.upstreams.tls)));
  if (READING.some((role) => roles.includes(role))) {
    const retention = state.retention.follow();
    closers.add("retention", () => retention.close());
    const pulled = state.authorStates.follow(log);
    closers.add("pulled authors", () => pulled.close());
  }
  await start(WORKING);
  http.complete();
  readiness.waiting = undefined;
  // Readiness is closed first: load balancers send no more requests here.
  closers.add("readiness", () => {
    readiness.waiting = STOPPING;
    grpc?.setServing(false);
  });
  log.info({ roles }, "ready");
  return { http };
}

async function openHttp(
  { process: { roles, httpAddress: address, httpKeepAliveMs: keepAliveMs } }: Config,
  { closers, telemetry, log }: StartOptions,
  readiness: Readiness,
): Promise<HttpServer> {
  const http = await listening(
    `TIMELINE_HTTP_ADDR=${address}`,
    serveHttp({ address, keepAliveMs, notReady: () => readiness.reasons(), metrics: telemetry.scrape, log }),
  );
  closers.add("HTTP", () => http.close(SECOND));
  log.info({ port: http.port, roles }, "serving HTTP");
  return http;
}

/** Opens the connections, and the database of the roles that keep data. */
async function openDeps(
  config: Config,
  { closers, telemetry, log, wraps = {} }: StartOptions,
  readiness: Readiness,
): Promise<RoleDeps & { db: Db | undefined }> {
  const { roles } = config.process;
  const usual = await openConnections(config, log, {
    closers,
    reads: wraps.limits?.reads,
    stateWraps: wraps.state,
    waiting: (server) => {
      readiness.waiting = server ?? "roles";
    },
  });
  const connections = wraps.connections?.(usual) ?? usual;
  const depths = await startDepths(connections.nats, {
    ages: roles.includes("fanout"),
    notifyParts: config.nats.notifyParts,
    log,
  });
  closers.add("depths", () => depths.close());
  readiness.connections = connections;
  const db = await openDatabase(config, log, closers);
  readiness.inUse.push(connections.redis, connections.nats, ...(db && keepsData(roles) ? [db] : []));
  const { exportsTraces } = telemetry;
  return { config, connections, db, suspectLock: new SuspectLock(), exportsTraces, wraps, log };
}

/** Roles that keep data have a database, and the gateway has an entrance. */
type AnyRoleDeps = StoringRoleDeps & GatewayRoleDeps;

const STARTS: Readonly<Record<Role, (deps: AnyRoleDeps) => Promise<RunningRole>>> = {
  users: startUsersRole,
  posts: startPostsRole,
  api: startApiRole,
  gateway: startGatewayRole,
  fanout: startFanoutRole,
  bridge: startBridgeRole,
  analysis: startAnalysisRole,
  rewards: startRewardsRole,
  notifications: startNotificationsRole,
  ops: startOpsRole,
};

/** Starts those of some roles that this process has, one after the other; they are closed together. */
function createStart(deps: AnyRoleDeps, closers: Closers, readiness: Readiness) {
  return async (asked: readonly Role[]): Promise<RunningRole[]> => {
    const started: RunningRole[] = [];
    closers.add(asked.join(", "), async (graceMs) => {
      await Promise.all(started.map((role) => role.close(graceMs)));
    });
    for (const role of asked.filter((role) => deps.config.process.roles.includes(role))) {
      const running = await STARTS[role](deps);
      started.push(running);
      readiness.roles.push(running);
    }
    return started;
  };
}

async function openGrpc(
  config: Config["grpcServer"],
  services: readonly Service[],
  log: Logger,
): Promise<GrpcServer | undefined> {
  if (services.length === 0) return undefined;
  const server = await listening(
    `TIMELINE_GRPC_ADDR=${config.address}`,
    serveGrpc(config.address, services, config.tls),
  );
  server.setServing(true);
  log.info({ port: server.port, services: services.map(({ name }) => name) }, "serving gRPC");
  return server;
}

const STOPPING = "stopping";

/** /readyz answers 503 for these reasons. */
export class Readiness {
  waiting: string | undefined = "start";
  readonly roles: RunningRole[] = [];
  connections: Pick<ServiceConnections, "topology" | "eviction" | "clockFault"> | undefined;
  /** The servers of these clients may refuse our credentials. */
  readonly inUse: object[] = [];

  constructor(private readonly configured: readonly Role[]) {
    observedGauge("timeline_ready", "1 while /readyz answers 200, 0 while it answers 503", () =>
      this.reasons().length === 0 ? 1 : 0,
    );
  }

  /** The port may be open to people outside: texts of servers are in the log only. */
  reasons(): string[] {
    // Connections that this process closes are not unavailable.
    if (this.waiting === STOPPING) return [STOPPING];
    const { topology, eviction, clockFault } = this.connections ?? {};
    // The role api answers from Redis, and users and posts from their database, while NATS is unavailable.
    const needsNats = this.configured.some((role) => WORKING.includes(role));
    const reasons = [
      ...this.inUse.flatMap((connection) => refusalOf(connection)?.publicMessage ?? []),
      ...[this.waiting ?? []].flat(),
      ...(topology && !topology.connected && needsNats ? ["NATS is unavailable"] : []),
      ...[topology?.fault ?? []].flat(),
      ...[eviction?.fault() ?? []].flat(),
      ...[clockFault?.() ?? []].flat(),
      ...this.roles.flatMap((role) => role.notReady() ?? []),
    ];
    return [...new Set(reasons)];
  }
}
