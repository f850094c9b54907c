import { mkdir, open, readFile, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { signalProcess } from "../../kernel/process-identity.js";
import { claimFolder, recordServer, releaseFolder } from "./broker-file.js";
import { isFree } from "./free-port.js";
import { type GuardedServer, spawnGuarded } from "./guard.js";
import type { Readiness } from "./probe.js";
import type { Broker, BrokerBinary, BrokerExit, BrokerName } from "./types.js";

/** One try: the ports it uses and how to tell that the server is up. */
export type Attempt = {
  readonly port: number;
  readonly monitorUrl?: string;
  readonly args: readonly string[];
  readonly probe: (pid: number) => Promise<Readiness>;
};

/** What differs between the servers. */
export type LaunchPlan = {
  readonly kind: BrokerName;
  readonly dir: string;
  readonly binary: BrokerBinary;
  /** Called again after a clash of ports; must choose new ones where it may. */
  readonly nextAttempt: () => Promise<Attempt>;
  /** True when the caller fixed the port, so another try may clash again. */
  readonly portFixed: boolean;
};

type Running = { readonly server: GuardedServer; readonly exited: Promise<BrokerExit> };

const START_TIMEOUT_MS = 30_000;
const STOP_GRACE_MS = 5_000;
const CLASH_TRIES = 8;
const LOG_LINES_SHOWN = 12;

/** Makes `dir` absolute and present. */
export async function prepareFolder(dir: string): Promise<string> {
  const absolute = resolve(dir);
  await mkdir(absolute, { recursive: true });
  return absolute;
}

/** Starts a server in its folder and returns once it answers. */
export async function launch(plan: LaunchPlan): Promise<Broker> {
  await claimFolder(plan.dir);
  try {
    for (let tries = 1; ; tries += 1) {
      const attempt = await plan.nextAttempt();
      const outcome = await tryOnce(plan, attempt);
      if (!("failed" in outcome)) return toBroker(plan, attempt, outcome);
      // With a fixed port another try only helps when the clash was about something else, such as the monitoring port.
      const mayRetry = outcome.clash && tries < CLASH_TRIES && (!plan.portFixed || (await isFree(attempt.port)));
      if (!mayRetry) throw startError(plan, attempt, outcome);
      await claimFolder(plan.dir);
    }
  } catch (error) {
    await releaseFolder(plan.dir);
    throw error;
  }
}

type Failure = { readonly failed: string; readonly clash: boolean; readonly log: string };

async function tryOnce(plan: LaunchPlan, attempt: Attempt): Promise<Running | Failure> {
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
  const exited = server.exited.then(async (exit) => {
    await releaseFolder(plan.dir, server.identity.pid).catch(() => undefined);
    return exit;
  });
  const failed = await waitUntilReady(attempt, server.identity.pid, exited);
  if (failed === undefined) return { server, exited };
  await endServer(server.identity.pid, exited);
  const text = (await readFile(logPath)).subarray(logStart).toString("utf8");
  return { failed, log: text, clash: /address already in use|eaddrinuse/i.test(text) };
}

async function waitUntilReady(attempt: Attempt, pid: number, exited: Promise<BrokerExit>): Promise<string | undefined> {
  let exit: BrokerExit | undefined;
  void exited.then((value) => {
    exit = value;
  });
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline) {
    const readiness = await attempt.probe(pid);
    if (exit !== undefined) return `ended with ${exit.signal ?? `code ${exit.code}`} while starting`;
    if (readiness === "ready") return undefined;
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

/** Carried packages bring the client along, with libraries of its own. */
function clientOf({ kind, binary: { command, env, origin } }: LaunchPlan): { cli?: string } {
  if (kind !== "redis") return {};
  if (origin === "path") return { cli: "redis-cli" };
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value} `);
  return { cli: `${variables.join("")}${join(dirname(command), "redis-cli")}` };
}

function toBroker(plan: LaunchPlan, attempt: Attempt, { server, exited }: Running): Broker {
  const { pid } = server.identity;
  let ended = false;
  void exited.then(() => {
    ended = true;
  });
  return {
    kind: plan.kind,
    url: `${plan.kind}://127.0.0.1:${attempt.port}`,
    port: attempt.port,
    pid,
    dir: plan.dir,
    version: plan.binary.version,
    ...clientOf(plan),
    ...(attempt.monitorUrl === undefined ? {} : { monitorUrl: attempt.monitorUrl }),
    exited,
    stop: () => endServer(pid, exited, () => ended),
    kill: (signal) => {
      if (!ended) signalProcess(pid, signal);
    },
  };
}

async function endServer(pid: number, exited: Promise<BrokerExit>, ended = (): boolean => false): Promise<void> {
  if (ended()) return;
  signalProcess(pid, "SIGTERM");
  // A server stopped by SIGSTOP would never see the SIGTERM.
  signalProcess(pid, "SIGCONT");
  const timer = setTimeout(() => signalProcess(pid, "SIGKILL"), STOP_GRACE_MS);
  await exited;
  clearTimeout(timer);
}
