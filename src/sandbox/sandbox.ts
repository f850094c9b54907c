import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { SignJWT } from "jose";
import { createProgress, toTerminal } from "../cli/terminal.js";
import { silent } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import { SERVICE_FIELDS, VERSION } from "../kernel/version.js";
import { connectNats } from "../platform/nats/connect.js";
import { Closers } from "../roles/closers.js";
import { readConfig } from "../roles/config/config.js";
import { startTelemetry } from "../telemetry/exporters.js";
import { createLogger } from "../telemetry/logger.js";
import { freePort, isFree, startNats, startRedis } from "./brokers/index.js";
import { openDataFolder } from "./data-folder.js";
import { fillWorld } from "./fill-world.js";
import { superviseWorker } from "./worker.js";
import { breakable, Faults } from "./world/faults.grpc.js";
import { createPlaygroundRouter } from "./world/playground.http.js";
import { connectWorld } from "./world/world.grpc.js";

interface SandboxOptions {
  readonly followers: number;
  readonly httpPort: number;
  readonly grpcPort: number;
  /** Exit code after SIGINT or SIGTERM. */
  readonly exitCode: number;
}

const GRACE_MS = 20 * SECOND;

/** A sandbox is a whole system on one machine: servers, upstreams, every role. */
export type Sandbox = Awaited<ReturnType<typeof openSandbox>>;

/** Starts a sandbox, and closes it after its use or a signal. */
export async function withSandbox(options: SandboxOptions, use: (sandbox: Sandbox) => Promise<void>): Promise<void> {
  const closers = new Closers();
  const progress = createProgress();
  const stop = (): void => void closers.closeAll(toTerminal, GRACE_MS).then(() => process.exit(options.exitCode));
  process.once("SIGINT", stop);
  process.once("SIGTERM", stop);
  try {
    await use(await openSandbox(options, { closers, progress }));
  } finally {
    progress.end();
    await closers.closeAll(toTerminal, GRACE_MS);
  }
}

async function openSandbox(
  options: SandboxOptions,
  { closers, progress }: { readonly closers: Closers; readonly progress: ReturnType<typeof createProgress> },
) {
  const onProgress = progress.say;
  const { folder, remove } = await openDataFolder();
  closers.add("data folder", () => remove?.());
  const telemetry = startTelemetry(process.env, VERSION);
  closers.add("telemetry", () => telemetry.close());
  const [redis, nats, { startService }] = await Promise.all([
    startRedis({ dir: join(folder, "redis"), appendonly: true, onProgress }),
    startNats({ dir: join(folder, "nats"), onProgress }),
    // It is loaded after telemetry has started; see startTelemetry.
    import("../roles/service.js"),
  ]);
  for (const server of [redis, nats]) closers.add(`${server.kind}-server`, () => server.stop());
  onProgress("starting the roles");
  const secret = randomBytes(32).toString("base64url");
  const env = {
    REDIS_URL: redis.url,
    NATS_URL: nats.url,
    TIMELINE_HTTP_ADDR: `127.0.0.1:${await portOr(options.httpPort)}`,
    TIMELINE_GRPC_ADDR: `127.0.0.1:${await portOr(options.grpcPort)}`,
    TIMELINE_DATA_DIR: folder,
    TIMELINE_JWT_SECRET: secret,
    TIMELINE_ACK_WAIT_MS: String(3.5 * SECOND),
  };
  const config = readConfig({
    ...env,
    TIMELINE_ROLES: "users,posts,bridge,api,gateway,analysis,rewards,notifications",
  });
  const faults = new Faults();
  const logFile = join(folder, "service.log");
  const grpcAddress = config.grpcServer.address;
  const workerHttpAddress = `127.0.0.1:${await freePort()}`;
  const worker = superviseWorker(workerEnvironment(env, workerHttpAddress), logFile);
  const log = createLogger({ ...config.process, isExported: false, fields: SERVICE_FIELDS, file: logFile });
  const wraps = { service: (definition: Parameters<typeof breakable>[0]) => breakable(definition, faults) };
  const service = await startService(config, { telemetry, closers, log, wraps });
  closers.add("worker", () => worker.stop());
  const world = connectWorld(grpcAddress);
  closers.add("world", () => world.close());
  const connection = await connectNats({ servers: [nats.url], name: "sandbox" }, silent);
  closers.add("sandbox's NATS", () => connection.close());
  const seeded = await fillWorld(world, connection, { bigAuthorFollowers: options.followers, onProgress });
  const issueToken = (user: string) => signToken(user, secret);
  const ask = async (endpoint: string, request: object): Promise<unknown> => {
    const answer = await connection.request(`avion.ops.dlq.${endpoint}`, JSON.stringify(request), {
      timeout: 5 * SECOND,
    });
    return answer.json();
  };
  const deadLetters = { list: () => ask("list", {}), redrive: () => ask("redrive", { all: true }) };
  service.http.use(createPlaygroundRouter({ world, faults, deadLetters, issueToken }));
  const httpUrl = `http://${config.process.httpAddress}`;
  const servers = { redis, nats, connection, closers, progress };
  const httpAddresses = { service: config.process.httpAddress, worker: workerHttpAddress };
  return {
    ...servers,
    folder,
    logFile,
    world,
    seeded,
    worker,
    grpcAddress,
    httpUrl,
    httpAddresses,
    secret,
    issueToken,
  };
}

const signToken = (user: string, secret: string): Promise<string> =>
  new SignJWT({ tier: "JET" })
    .setProtectedHeader({ alg: "HS256", typ: "JWT" })
    .setSubject(user)
    .setIssuedAt()
    .setExpirationTime("1 day")
    .sign(new TextEncoder().encode(secret));

/** The fan-out runs in a process of its own, so that it can be killed. */
function workerEnvironment(env: { readonly TIMELINE_GRPC_ADDR: string }, httpAddress: string): NodeJS.ProcessEnv {
  return {
    ...process.env,
    ...env,
    TIMELINE_ROLES: "fanout",
    TIMELINE_HTTP_ADDR: httpAddress,
    TIMELINE_USER_SERVICE_ADDR: env.TIMELINE_GRPC_ADDR,
    TIMELINE_POST_SERVICE_ADDR: env.TIMELINE_GRPC_ADDR,
  };
}

export const portOr = async (preferred: number): Promise<number> =>
  preferred > 0 && (await isFree(preferred)) ? preferred : freePort();
