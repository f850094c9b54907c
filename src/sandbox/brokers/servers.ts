import { randomBytes } from "node:crypto";
import { connect } from "node:net";
import { join, resolve } from "node:path";
import { findBroker } from "./find-broker.js";
import { freePort } from "./free-port.js";
import { type Attempt, type Broker, launch, type StartOptions } from "./launch.js";

export type RedisOptions = StartOptions & {
  /** Keeps the data across restarts: append-only file, synced every second. */
  readonly appendonly?: boolean;
};

/** Starts a private Redis (or Valkey) on loopback that ends with this process. */
export async function startRedis(options: RedisOptions): Promise<Broker> {
  return start("redis", options, async () => {
    const port = options.port ?? (await freePort());
    return { port, args: redisArgs(port, options), isReady: (pid) => redisIsReady(port, pid) };
  });
}

/** Starts a private nats-server with JetStream (file storage in `dir`) on loopback that ends with this process. */
export async function startNats(options: StartOptions): Promise<Broker> {
  return start("nats", options, (dir) => natsAttempt(dir, options));
}

async function start(
  kind: "redis" | "nats",
  options: StartOptions,
  attempt: (dir: string) => Promise<Attempt>,
): Promise<Broker> {
  const dir = resolve(options.dir);
  const binary = await findBroker(kind, { onProgress: options.onProgress, binary: options.binary });
  return launch({ kind, dir, binary, nextAttempt: () => attempt(dir), portFixed: options.port !== undefined });
}

/** The data folder is the working directory: older servers split a --dir with spaces in it. */
function redisArgs(port: number, options: RedisOptions): string[] {
  const appendonly = options.appendonly === true ? "yes" : "no";
  const network = ["--port", String(port), "--bind", "127.0.0.1", "--daemonize", "no"];
  const storage = ["--save", "", "--appendonly", appendonly, "--appendfsync", "everysec"];
  const memory = ["--maxmemory-policy", "noeviction"];
  return [...network, ...storage, ...memory, ...(options.extraArgs ?? [])];
}

const NAME_FLAGS = new Set(["-n", "--name", "--server_name"]);

async function natsAttempt(dir: string, options: StartOptions): Promise<Attempt> {
  const port = options.port ?? (await freePort());
  let monitorPort = await freePort();
  while (monitorPort === port) monitorPort = await freePort();
  const extraArgs = options.extraArgs ?? [];
  // The name tells our server from another on the same port; a caller's own name switches that check off.
  const name = extraArgs.some((arg) => NAME_FLAGS.has(arg)) ? undefined : `timeline-${randomBytes(6).toString("hex")}`;
  const network = ["-a", "127.0.0.1", "-p", String(port), "-m", String(monitorPort)];
  const storage = ["-js", "-sd", join(dir, "jetstream")];
  return {
    port,
    monitorUrl: `http://127.0.0.1:${monitorPort}`,
    args: [...network, ...storage, ...(name === undefined ? [] : ["-n", name]), ...extraArgs],
    isReady: () => natsIsReady(port, name),
  };
}

/** Another server may own the port while ours fails to bind it: the process that answers must be ours. */
async function redisIsReady(port: number, pid: number): Promise<boolean> {
  const answer = await talk(port, "PING\r\nINFO server\r\n", (text) => /process_id:\d+\r|^-.*\r\n-.*\r\n/.test(text));
  // A server with a password refuses every command, which is an answer as well.
  if (answer.startsWith("-NOAUTH")) return true;
  return answer.startsWith("+PONG") && answer.includes(`process_id:${pid}\r`);
}

/** NATS is ready when it answers PING, has JetStream on, and carries the name we gave it. */
async function natsIsReady(port: number, serverName: string | undefined): Promise<boolean> {
  const hello = `CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n`;
  const answer = await talk(port, hello, (text) => /\r\nPONG\r\n|\r\n-ERR/.test(text));
  const info = readInfo(answer);
  if (info === undefined || (serverName !== undefined && info["server_name"] !== serverName)) return false;
  const answered = answer.includes("\r\nPONG\r\n") || answer.includes("-ERR 'Authorization Violation'");
  return answered && info["jetstream"] === true;
}

function readInfo(answer: string): Record<string, unknown> | undefined {
  const json = /^INFO (\{.*\})\s*\r\n/.exec(answer)?.[1];
  try {
    return json === undefined ? undefined : (JSON.parse(json) as Record<string, unknown>);
  } catch {
    return undefined;
  }
}

const ANSWER_LIMIT_CHARS = 256 * 1024;
const ANSWER_TIMEOUT_MS = 1_000;

/** Sends one text and gathers the answer until it is complete, or the connection fails. */
function talk(port: number, request: string, complete: (text: string) => boolean): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    const socket = connect({ port, host: "127.0.0.1" });
    const finish = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(text);
    };
    const timer = setTimeout(finish, ANSWER_TIMEOUT_MS);
    socket.setEncoding("utf8");
    socket.once("connect", () => socket.write(request));
    socket.on("data", (chunk: string) => {
      text += chunk;
      if (complete(text) || text.length > ANSWER_LIMIT_CHARS) finish();
    });
    socket.once("error", finish);
    socket.once("close", finish);
  });
}
