import { open, readFile, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { claimFolder, recordServer } from "./data-folder.js";
import type { BrokerName, OnProgress } from "./debian.js";
import type { BrokerBinary } from "./find-broker.js";
import { isFree } from "./free-port.js";
import { type BrokerExit, type GuardedServer, spawnGuarded } from "./guarded.js";

export interface Broker {
  readonly kind: BrokerName;
  readonly url: string;
  readonly port: number;
  /** The process is the server, not the guard around it. */
  readonly pid: number;
  readonly dir: string;
  readonly version: string;
  /** A shell calls the client that came with the server by this command. Only Redis has one. */
  readonly cli: string | undefined;
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
  readonly binary?: string;
  readonly onProgress?: OnProgress;
}

/** One try to start. `isReady` resolves to true once the server that answers is ours. */
export interface Attempt {
  readonly port: number;
  readonly monitorUrl?: string;
  readonly args: readonly string[];
  readonly isReady: (pid: number) => Promise<boolean>;
}

interface LaunchPlan {
  readonly kind: BrokerName;
  readonly dir: string;
  readonly binary: BrokerBinary;
  /** This is called again after a clash of ports, and must choose new ones where it may. */
  readonly nextAttempt: () => Promise<Attempt>;
  /** The caller fixed the port, so another try may clash again. */
  readonly portFixed: boolean;
}

const START_TIMEOUT_MS = 30_000;
const CLASH_TRIES = 8;
const LOG_LINES_SHOWN = 12;

export async function launch(plan: LaunchPlan): Promise<Broker> {
  const release = await claimFolder(plan.dir);
  try {
    for (let tries = 1; ; tries += 1) {
      const attempt = await plan.nextAttempt();
      const outcome = await tryOnce(plan, attempt);
      if ("failed" in outcome) {
        // Another try with a fixed port helps only if another port clashed, such as that for monitoring.
        const mayRetry = outcome.clash && tries < CLASH_TRIES && (!plan.portFixed || (await isFree(attempt.port)));
        if (!mayRetry) throw startError(plan, attempt, outcome);
        continue;
      }
      const exited = releasedAfter(outcome.exited, release);
      const { port, monitorUrl } = attempt;
      return {
        ...{ kind: plan.kind, url: `${plan.kind}://127.0.0.1:${port}`, port, monitorUrl, dir: plan.dir },
        ...{ pid: outcome.identity.pid, version: plan.binary.version, cli: clientOf(plan), exited, kill: outcome.kill },
        stop: () => outcome.stop().then(() => exited.then(() => undefined)),
      };
    }
  } catch (error) {
    await release();
    throw error;
  }
}

interface Failure {
  readonly failed: string;
  readonly clash: boolean;
  readonly log: string;
}

async function releasedAfter<T>(work: Promise<T>, release: () => Promise<void>): Promise<T> {
  try {
    return await work;
  } finally {
    await release().catch(() => undefined);
  }
}

async function tryOnce(plan: LaunchPlan, attempt: Attempt): Promise<GuardedServer | Failure> {
  const logPath = join(plan.dir, `${plan.kind}.log`);
  const log = await open(logPath, "a");
  const logStart = (await stat(logPath)).size;
  let server: GuardedServer;
  try {
    const { command, env } = plan.binary;
    server = await spawnGuarded({ command, args: attempt.args, env, cwd: plan.dir, logFd: log.fd });
  } finally {
    await log.close();
  }
  await recordServer(plan.dir, server.identity);
  const failed = await waitUntilReady(attempt, server);
  if (failed === undefined) return server;
  await server.stop();
  const text = (await readFile(logPath)).subarray(logStart).toString("utf8");
  return { failed, log: text, clash: /address already in use|eaddrinuse/i.test(text) };
}

async function waitUntilReady(attempt: Attempt, { identity, exited }: GuardedServer): Promise<string | undefined> {
  let exit: BrokerExit | undefined;
  void exited.then((value) => {
    exit = value;
  });
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline) {
    const ready = await attempt.isReady(identity.pid);
    if (exit !== undefined) return `ended with ${exit.signal ?? `code ${exit.code}`} while starting`;
    if (ready) return undefined;
    await Promise.race([delay(20), exited]);
  }
  return `did not answer within ${START_TIMEOUT_MS / 1_000} seconds`;
}

function startError(plan: LaunchPlan, attempt: Attempt, failure: Failure): Error {
  const lines = failure.log.trimEnd().split("\n").slice(-LOG_LINES_SHOWN);
  const clash = failure.clash ? ` (port ${attempt.port} is taken)` : "";
  const log = join(plan.dir, `${plan.kind}.log`);
  return new Error(`${plan.binary.command} ${failure.failed}${clash}; the last lines of ${log}:\n${lines.join("\n")}`);
}

/** Fetched packages bring the client along, with libraries of its own. */
function clientOf({ kind, binary: { command, env, origin } }: LaunchPlan): string | undefined {
  if (kind !== "redis") return undefined;
  if (origin === "path") return "redis-cli";
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value} `);
  return `${variables.join("")}${join(dirname(command), "redis-cli")}`;
}
