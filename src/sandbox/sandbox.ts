import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SignJWT } from "jose";
import { type GetTimelineRequest, type GetTimelineResponse, TimelineServiceClient } from "../gen/avion/timeline.js";
import { silent } from "../kernel/logger.js";
import { DAY, MINUTE } from "../kernel/time.js";
import { CHANNEL_OPTIONS, clientCredentials } from "../platform/grpc/call.js";
import { connectNats } from "../platform/nats/connect.js";
import { startTelemetry } from "../platform/telemetry.js";
import type { Closers } from "../roles/closers.js";
import { type Config, readConfig } from "../roles/config/config.js";
import type { StartOptions } from "../roles/service.js";
import { createServiceLogger, VERSION } from "../roles/version.js";
import { type Broker, clearStale, freePort, isFree, startNats, startRedis } from "./brokers/index.js";
import { fillWorld, type SeedSummary } from "./fill-world.js";
import { superviseWorker, type Worker } from "./worker.js";
import { createConsoleRouter } from "./world/console.http.js";
import { breakable, createFaults } from "./world/faults.grpc.js";
import { connectPeople, type People } from "./world/people.grpc.js";

export interface SandboxOptions {
  readonly closers: Closers;
  readonly bigAuthorFollowers: number;
  readonly httpPort: number;
  readonly grpcPort: number;
  readonly onProgress: (text: string) => void;
}

type ReadPage = (user: string, page?: Partial<GetTimelineRequest>) => Promise<GetTimelineResponse>;

/** A whole system on one machine: servers, upstreams, every role. */
export interface Sandbox {
  readonly folder: string;
  readonly logFile: string;
  readonly redis: Broker;
  readonly nats: Broker;
  readonly people: People;
  readonly seeded: SeedSummary;
  readonly worker: Worker;
  readonly grpcAddress: string;
  readonly httpUrl: string;
  readonly issueToken: (user: string) => Promise<string>;
  readonly readHome: ReadPage;
}

/** Starts everything, to be closed by `closers`. */
export async function openSandbox(options: SandboxOptions): Promise<Sandbox> {
  const { closers, onProgress } = options;
  const folder = await newDataFolder();
  closers.add("data folder", () => rm(folder, { recursive: true, force: true }));
  const logFile = join(folder, "service.log");
  const redis = await startRedis({ dir: join(folder, "redis"), appendonly: true, onProgress });
  closers.add("redis-server", () => redis.stop());
  const nats = await startNats({ dir: join(folder, "nats"), onProgress });
  closers.add("nats-server", () => nats.stop());
  onProgress("starting the roles");
  const secret = randomBytes(32).toString("base64url");
  const env = await environment(options, { redis, nats, folder, secret });
  const config = readConfig({ ...env, TIMELINE_ROLES: "users,posts,bridge,api,gateway" });
  const faults = createFaults();
  const log = createServiceLogger(config.process.logLevel, logFile);
  const service = await startRoles(config, { closers, log, wraps: { service: (one) => breakable(one, faults) } });
  const worker = superviseWorker(workerEnvironment(env, config.grpcServer.address), logFile);
  closers.add("worker", () => worker.stop());
  const grpcAddress = config.grpcServer.address;
  const client = new TimelineServiceClient(grpcAddress, clientCredentials({}), CHANNEL_OPTIONS);
  closers.add("gRPC client", () => client.close());
  const people = connectPeople(grpcAddress);
  closers.add("people", () => people.close());
  const connection = await connectNats({ servers: [nats.url], name: "sandbox" }, silent);
  closers.add("sandbox's NATS", () => connection.close());
  const seeded = await fillWorld(people, connection, options);
  const readHome = createReadHome(client);
  const issueToken = createIssueToken(secret, DAY);
  service.http.use(createConsoleRouter({ people, faults, issueToken, readHome }));
  const httpUrl = `http://${config.process.httpAddress}`;
  return { folder, logFile, redis, nats, people, seeded, worker, grpcAddress, httpUrl, issueToken, readHome };
}

async function environment(
  options: SandboxOptions,
  of: { redis: Broker; nats: Broker; folder: string; secret: string },
): Promise<NodeJS.ProcessEnv> {
  return {
    REDIS_URL: of.redis.url,
    NATS_URL: of.nats.url,
    TIMELINE_HTTP_ADDR: `127.0.0.1:${await portOr(options.httpPort)}`,
    TIMELINE_GRPC_ADDR: `127.0.0.1:${await portOr(options.grpcPort)}`,
    TIMELINE_DATA_DIR: of.folder,
    TIMELINE_JWT_SECRET: of.secret,
  };
}

/** The fan-out runs in a process of its own, so that it can be killed. */
function workerEnvironment(env: NodeJS.ProcessEnv, grpcAddress: string): NodeJS.ProcessEnv {
  return {
    ...process.env,
    ...env,
    TIMELINE_ROLES: "fanout",
    TIMELINE_HTTP_ADDR: "127.0.0.1:0",
    TIMELINE_USER_SERVICE_ADDR: grpcAddress,
    TIMELINE_POST_SERVICE_ADDR: grpcAddress,
  };
}

/** The roles of this process are loaded after telemetry has started; see startTelemetry. */
async function startRoles(config: Config, options: Omit<StartOptions, "telemetry">) {
  const telemetry = startTelemetry(process.env, VERSION);
  options.closers.add("telemetry", () => telemetry.close());
  const { startService } = await import("../roles/service.js");
  return startService(config, { ...options, telemetry });
}

const PREFIX = "avion-timeline-";

/** Each sandbox has a folder of its own, so that several can run side by side. */
async function newDataFolder(): Promise<string> {
  await clearLeftovers();
  return mkdtemp(join(tmpdir(), PREFIX));
}

/** Ends servers of sandboxes that were killed, and removes their folders, except those still in use. */
async function clearLeftovers(): Promise<void> {
  for (const name of (await readdir(tmpdir())).filter((entry) => entry.startsWith(PREFIX))) {
    const folder = join(tmpdir(), name);
    try {
      // A folder just made may belong to a sandbox whose servers have not started yet.
      if (Date.now() - (await stat(folder)).mtimeMs < MINUTE) continue;
      await clearStale(join(folder, "redis"));
      await clearStale(join(folder, "nats"));
      await rm(folder, { recursive: true, force: true });
    } catch {
      // In use, or another user's.
    }
  }
}

async function portOr(preferred: number): Promise<number> {
  return preferred > 0 && (await isFree(preferred)) ? preferred : freePort();
}

function createIssueToken(secret: string, lifetimeMs: number): (user: string) => Promise<string> {
  const key = new TextEncoder().encode(secret);
  return (user) =>
    new SignJWT({})
      .setProtectedHeader({ alg: "HS256", typ: "JWT" })
      .setSubject(user)
      .setIssuedAt()
      .setExpirationTime(new Date(Date.now() + lifetimeMs))
      .sign(key);
}

function createReadHome(client: TimelineServiceClient): ReadPage {
  return (user, page = {}) =>
    new Promise((resolve, reject) => {
      const request = { limit: 0, since_id: "", max_id: "", min_id: "", ...page, user_id: user };
      client.getHomeTimeline(request, (error, response) => (error ? reject(error) : resolve(response)));
    });
}
