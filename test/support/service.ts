import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fillDataFolder } from "./data-folder.js";
import { eventually } from "./eventually.js";
import { FAILPOINTS_VARIABLE } from "./failpoints.js";
import { LIMITS_VARIABLE, UNLIMITED } from "./limits.js";
import { newPort } from "./ports.js";

/** Addresses a service needs; `env` wins over everything. */
export type ServiceOptions = {
  readonly redisUrl: string;
  readonly natsUrl: string;
  readonly usersAddress: string;
  readonly postsAddress: string;
  readonly roles?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Arguments of Node; unset: the built program's `serve`. */
  readonly command?: readonly string[];
};

/** The end of a process. */
export type Ending = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

/** A process of the built service. */
export type ServiceProcess = {
  readonly pid: number;
  readonly exited: Promise<Ending>;
  /** The last lines it wrote. */
  logs(): string;
  /** Everything it wrote to stdout. */
  output(): string;
  /** Everything it wrote to stderr. */
  errors(): string;
  signal(name: NodeJS.Signals): void;
  /** Nobody reads its standard error any more. */
  closeErrors(): void;
  /** SIGTERM; yields how it ended, after SIGKILL where that took too long. */
  stop(): Promise<Ending>;
  /** SIGKILL, and waits for the end. */
  crash(): Promise<void>;
};

/** A process of the built service that listens. */
export type Service = ServiceProcess & { readonly grpcAddress: string; readonly httpUrl: string };

/** The secret that signs the tokens of tests. */
export const JWT_SECRET = "a secret for tests that is long enough for HS256";

/** The build, bundled by test/support/jest/bundle.mjs. */
export const MAIN = process.env["AVION_TEST_MAIN"] ?? join(process.cwd(), "dist/main.js");

/** The tests' entry point: that bundle, or the files of `dist`. */
const ENTRY = process.env["AVION_TEST_ENTRY"]
  ? [process.env["AVION_TEST_ENTRY"]]
  : ["--import", "tsx", join(process.cwd(), "test/support/entry/main.ts")];

/** WebAssembly that V8 does not optimize starts the embedded database with half of the CPU time. */
const FLAGS = process.env["AVION_TEST_MAIN"] ? ["--liftoff-only"] : [];

/** Arguments of Node that run the built program; only the tests' entry point knows failpoints and limits. */
export const program = (env: Readonly<Record<string, string>> = {}): readonly string[] => [
  ...FLAGS,
  ...(FAILPOINTS_VARIABLE in env || LIMITS_VARIABLE in env ? ENTRY : [MAIN]),
];

/** A service takes a second to start, and each look some ms of CPU time of both processes. */
const READY_POLL_MS = 80;
const STOP_PATIENCE_MS = 30_000;
/** The embedded database alone takes half of it where other tests keep all cores busy. */
const START_PATIENCE_MS = 45_000;
const MOST_TRIES = 3;
const LINES_KEPT = 400;
const LINES_SHOWN = 60;

declare global {
  /** In a test: killed at the end of its file. */
  var startedProcesses: Set<ChildProcess> | undefined;
}

const running = globalThis.startedProcesses ?? new Set<ChildProcess>();

process.once("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** Starts `serve` and waits until it says that it is ready. */
export async function startService(options: ServiceOptions): Promise<Service> {
  for (let tries = 1; ; tries++) {
    const service = await launchService(options);
    try {
      await untilReady(service);
      return service;
    } catch (error) {
      await service.crash();
      // Another process may have taken a port that was free.
      if (tries < MOST_TRIES && service.logs().includes("EADDRINUSE")) continue;
      throw new Error(`${String(error)}\n${service.logs()}`);
    }
  }
}

/** Starts `serve` without waiting for anything. */
export async function launchService(options: ServiceOptions): Promise<Service> {
  const dataDir = options.env?.["TIMELINE_DATA_DIR"];
  if (dataDir !== undefined) await fillDataFolder(dataDir);
  const [grpcPort, httpPort] = await freePorts();
  const addresses = { TIMELINE_GRPC_ADDR: `127.0.0.1:${grpcPort}`, TIMELINE_HTTP_ADDR: `127.0.0.1:${httpPort}` };
  const child = runNode(options.command ?? [...program(options.env), "serve"], {
    REDIS_URL: options.redisUrl,
    NATS_URL: options.natsUrl,
    TIMELINE_USER_SERVICE_ADDR: options.usersAddress,
    TIMELINE_POST_SERVICE_ADDR: options.postsAddress,
    TIMELINE_JWT_SECRET: JWT_SECRET,
    ...UNLIMITED,
    ...addresses,
    ...(options.roles === undefined ? {} : { TIMELINE_ROLES: options.roles }),
    ...options.env,
  });
  return { ...child, grpcAddress: addresses.TIMELINE_GRPC_ADDR, httpUrl: `http://${addresses.TIMELINE_HTTP_ADDR}` };
}

/** Waits for `GET /readyz` to answer 200; fails at once when the process ends. */
export async function untilReady(service: Service, patienceMs = START_PATIENCE_MS): Promise<void> {
  let ending: Ending | undefined;
  void service.exited.then((value) => {
    ending = value;
  });
  const ready = async (): Promise<true | string> => {
    if (ending !== undefined) throw new Error(`ended while starting: ${JSON.stringify(ending)}`);
    const status = await httpStatus(`${service.httpUrl}/readyz`);
    if (status === 200) return true;
    await delay(READY_POLL_MS);
    return `answers ${status ?? "nothing"}`;
  };
  await eventually(ready, "the service is ready", patienceMs);
}

/** The status of a GET, or undefined where nobody answers in time. */
export async function httpStatus(url: string): Promise<number | undefined> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    await response.arrayBuffer();
    return response.status;
  } catch {
    return undefined;
  }
}

/** Runs the built program with exactly these variables and those that any process needs. */
export const runMain = (args: readonly string[], env: Readonly<Record<string, string>>): ServiceProcess =>
  runNode([...program(env), ...args], env);

function runNode(args: readonly string[], env: Readonly<Record<string, string>>): ServiceProcess {
  const { PATH = "", HOME = "", TMPDIR } = process.env;
  const child = spawn(process.execPath, args, {
    env: { PATH, HOME, ...(TMPDIR === undefined ? {} : { TMPDIR }), ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const { pid } = child;
  if (pid === undefined) throw new Error("the service could not be started");
  running.add(child);
  const lines: string[] = [];
  let output = "";
  let errors = "";
  const keep = (chunk: Buffer): void => {
    lines.push(
      ...chunk
        .toString()
        .split("\n")
        .filter((line) => line !== ""),
    );
    lines.splice(0, lines.length - LINES_KEPT);
  };
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  child.stdout.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  child.stderr.on("data", (chunk: Buffer) => {
    errors += chunk.toString();
  });
  const exited = new Promise<Ending>((resolve) => {
    child.once("close", (code, signal) => {
      running.delete(child);
      resolve({ code, signal });
    });
  });
  const stop = async (): Promise<Ending> => {
    child.kill("SIGTERM");
    child.kill("SIGCONT");
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_PATIENCE_MS);
    const ending = await exited;
    clearTimeout(timer);
    return ending;
  };
  return {
    pid,
    exited,
    logs: () => lines.slice(-LINES_SHOWN).join("\n"),
    output: () => output,
    errors: () => errors,
    signal: (name) => void child.kill(name),
    closeErrors: () => void child.stderr.destroy(),
    stop,
    crash: async () => {
      child.kill("SIGKILL");
      await exited;
    },
  };
}

/** Two different ports that were free a moment ago. */
export const freePorts = (): Promise<readonly [number, number]> => Promise.all([newPort(), newPort()]);
