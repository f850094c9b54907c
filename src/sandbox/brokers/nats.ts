import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { findBroker } from "./find-broker.js";
import { freePort } from "./free-port.js";
import { type Attempt, launch, prepareFolder } from "./launch.js";
import { probeNats } from "./probe.js";
import type { Broker, StartOptions } from "./types.js";

/** Options of {@link startNats}. */
export type NatsOptions = StartOptions;

const NAME_FLAGS = new Set(["-n", "--name", "--server_name"]);

/** Starts a private nats-server with JetStream (file storage in `dir`) on loopback that ends with this process. */
export async function startNats(options: NatsOptions): Promise<Broker> {
  const dir = await prepareFolder(options.dir);
  const binary = await findBroker("nats", { onProgress: options.onProgress, binary: options.binary });
  const nextAttempt = async (): Promise<Attempt> => natsAttempt(dir, options);
  return launch({ kind: "nats", dir, binary, nextAttempt, portFixed: options.port !== undefined });
}

async function natsAttempt(dir: string, options: NatsOptions): Promise<Attempt> {
  const port = options.port ?? (await freePort());
  const monitorPort = await monitorPortBeside(port);
  const extraArgs = options.extraArgs ?? [];
  // The name tells our server from another one on the same port; a caller's own name switches that check off.
  const name = extraArgs.some((arg) => NAME_FLAGS.has(arg)) ? undefined : `timeline-${randomBytes(6).toString("hex")}`;
  const network = ["-a", "127.0.0.1", "-p", String(port), "-m", String(monitorPort)];
  const storage = ["-js", "-sd", join(dir, "jetstream")];
  return {
    port,
    monitorUrl: `http://127.0.0.1:${monitorPort}`,
    args: [...network, ...storage, ...(name === undefined ? [] : ["-n", name]), ...extraArgs],
    probe: () => probeNats(port, name),
  };
}

async function monitorPortBeside(port: number): Promise<number> {
  const candidate = await freePort();
  return candidate === port ? monitorPortBeside(port) : candidate;
}
