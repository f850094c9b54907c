import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { mkdir, open, readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname, join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { SECOND } from "../../kernel/time.js";
import type { BrokerName, OnProgress } from "./debian.js";
import { type BrokerBinary, findBroker } from "./find-broker.js";

interface BrokerExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface Broker {
  readonly kind: BrokerName;
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  readonly dir: string;
  readonly version: string;
  /** A shell calls the client that came with the server by this command. Only Redis has one. */
  readonly cli: string | undefined;
  /** Only NATS serves its state over HTTP. */
  readonly monitorUrl: string | undefined;
  readonly exited: Promise<BrokerExit>;
  /** Sends SIGTERM, then SIGKILL after 5 seconds; it is safe to call twice. */
  stop(): Promise<void>;
  kill(signal: NodeJS.Signals): void;
}

export interface StartOptions {
  /** The folder is made when it is missing. A restart on the same folder keeps the data. */
  readonly dir: string;
  readonly port?: number;
  readonly extraArgs?: readonly string[];
  readonly onProgress?: OnProgress;
}

export type RedisOptions = StartOptions & {
  /** Keeps the data across restarts: append-only file, synced every second. */
  readonly appendonly?: boolean;
  /** A sentinel keeps what it knows in this file, and does not start without it. */
  readonly configFile?: string;
};

/** Starts a private Redis (or Valkey) on loopback that ends with this process. */
export function startRedis(options: RedisOptions): Promise<Broker> {
  // The data folder is the working directory: older servers split a --dir with spaces in it.
  const network = ["--bind", "127.0.0.1", "--daemonize", "no"];
  const storage = ["--save", "", "--appendonly", options.appendonly ? "yes" : "no", "--appendfsync", "everysec"];
  const memory = ["--maxmemory-policy", "noeviction"];
  const config = options.configFile === undefined ? [] : [options.configFile];
  return start("redis", options, (port) => [...config, "--port", port, ...network, ...storage, ...memory]);
}

/** Starts a private nats-server with JetStream (file storage in `dir`) on loopback that ends with this process. */
export function startNats(options: StartOptions): Promise<Broker> {
  const storage = ["-js", "-sd", join(resolve(options.dir), "jetstream")];
  return start("nats", options, (port) => ["-a", "127.0.0.1", "-p", port, "-m", "-1", ...storage]);
}

/** A server logs this line once it answers. */
const READY: Readonly<Record<BrokerName, RegExp>> = {
  redis: /Ready to accept connections|Sentinel ID is/,
  nats: /Server is ready/,
};

const CLASH_TRIES = 8;
const START_TIMEOUT_MS = 30 * SECOND;
const STOP_GRACE_MS = 5 * SECOND;
const LOG_LINES_SHOWN = 12;

async function start(
  kind: BrokerName,
  options: StartOptions,
  argsOf: (port: string) => readonly string[],
): Promise<Broker> {
  const dir = resolve(options.dir);
  await mkdir(dir, { recursive: true });
  const binary = await findBroker(kind, { onProgress: options.onProgress });
  for (let tries = 1; ; tries++) {
    const port = options.port ?? (await freePort());
    const args = [...argsOf(String(port)), ...(options.extraArgs ?? [])];
    const { logFile, readLog, ...server } = await launch(binary, { dir, name: kind, args });
    const fault = await startFault(server.exited, async () => READY[kind].test(await readLog()));
    if (fault !== undefined) await server.stop();
    const log = await readLog();
    if (fault === undefined) {
      const monitor = /Starting http monitor on (\S+)/.exec(log)?.[1];
      const monitorUrl = monitor === undefined ? undefined : `http://${monitor}`;
      const url = `${kind}://127.0.0.1:${port}`;
      return { ...server, kind, url, port, dir, version: binary.version, cli: clientOf(kind, binary), monitorUrl };
    }
    const clash = /address already in use/i.test(log);
    if (clash && options.port === undefined && tries < CLASH_TRIES) continue;
    const taken = clash ? ` (port ${port} is taken)` : "";
    throw new Error(`${binary.command} ${fault}${taken}; ${lastLines(logFile, log)}`);
  }
}

const lastLines = (logFile: string, log: string): string =>
  `the last lines of ${logFile}:\n${log.trimEnd().split("\n").slice(-LOG_LINES_SHOWN).join("\n")}`;

interface Launch {
  /** The server's working directory, which exists. */
  readonly dir: string;
  readonly name: string;
  readonly args: readonly string[];
}

/**
 * Starts another server that ends with this process, and waits until it answers.
 *
 * @throws an error with the end of its log
 */
export async function startServer(
  program: Program,
  options: Launch & { readonly isReady: () => Promise<boolean> },
): Promise<{ stop(): Promise<void> }> {
  const { stop, exited, logFile, readLog } = await launch(program, options);
  const fault = await startFault(exited, options.isReady);
  if (fault === undefined) return { stop };
  await stop();
  throw new Error(`${program.command} ${fault}; ${lastLines(logFile, await readLog())}`);
}

type Program = Pick<BrokerBinary, "command" | "env">;

async function launch({ command, env }: Program, { dir, name, args }: Launch) {
  const logFile = join(dir, `${name}.log`);
  const log = await open(logFile, "a");
  const logStart = (await log.stat()).size;
  const server = spawn(command, args, {
    cwd: dir,
    env: { ...process.env, ...env },
    stdio: ["ignore", log.fd, log.fd],
    // Ctrl-C in the terminal reaches only this process, which ends the servers after those who use them.
    detached: true,
  });
  const exited = new Promise<BrokerExit>((ended) => {
    server.once("error", () => ended({ code: -1, signal: null }));
    server.once("exit", (code, signal) => ended({ code, signal }));
  });
  endWithThisProcess(server.pid, exited);
  await log.close();
  const kill = (signal: NodeJS.Signals): void => void server.kill(signal);
  return {
    pid: server.pid as number,
    exited,
    kill,
    stop: async () => {
      kill("SIGTERM");
      // A server stopped by SIGSTOP would not see the SIGTERM.
      kill("SIGCONT");
      const impatience = setTimeout(() => kill("SIGKILL"), STOP_GRACE_MS);
      await exited;
      clearTimeout(impatience);
    },
    logFile,
    /** Reads what the server has logged since this start. */
    readLog: async () => (await readFile(logFile)).subarray(logStart).toString(),
  };
}

const END_AFTER_PARENT = 'read -r _; kill -TERM "$1"; kill -CONT "$1"';

/** A shell waits until the kernel closes its input, which it does however this process ends, and then ends the server. */
function endWithThisProcess(pid: number | undefined, exited: Promise<unknown>): void {
  const args = ["-c", END_AFTER_PARENT, "end-after-parent", String(pid)];
  const shell = spawn("/bin/sh", args, { stdio: ["pipe", "ignore", "ignore"], detached: true });
  void exited.then(() => shell.kill("SIGKILL"));
}

/** Resolves to the reason why a server does not start; undefined once it answers. */
async function startFault(exited: Promise<BrokerExit>, isReady: () => Promise<boolean>): Promise<string | undefined> {
  let exit: BrokerExit | undefined;
  void exited.then((value) => {
    exit = value;
  });
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline) {
    const ready = await isReady();
    if (exit !== undefined) return `ended with ${exit.signal ?? `code ${exit.code}`} while starting`;
    if (ready) return undefined;
    await Promise.race([delay(20), exited]);
  }
  return `did not answer within ${START_TIMEOUT_MS / SECOND} seconds`;
}

/** Fetched packages bring the client along, with libraries of their own. */
function clientOf(kind: BrokerName, { command, env, origin }: BrokerBinary): string | undefined {
  if (kind !== "redis") return undefined;
  if (origin === "path") return "redis-cli";
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value} `);
  return `${variables.join("")}${join(dirname(command), "redis-cli")}`;
}

// The range is below that of outgoing connections, so a port found free mostly stays free until it is used.
const FIRST_PORT = 20_000;
const LAST_PORT = 32_000;
const PORT_TRIES = 50;

/** Finds a loopback port without a listener; the caller retries if another process takes it first. */
export async function freePort(): Promise<number> {
  for (let i = 0; i < PORT_TRIES; i++) {
    const port = randomInt(FIRST_PORT, LAST_PORT);
    if (await isFree(port)) return port;
  }
  throw new Error(`no free port found between ${FIRST_PORT} and ${LAST_PORT}`);
}

export function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen({ port, host: "127.0.0.1", exclusive: true }, () => server.close(() => resolve(true)));
  });
}
