import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Redis } from "ioredis";
import { readCommandConfig } from "../../src/roles/config/config.js";
import { type Broker, freePort, startRedis } from "../../src/sandbox/brokers/index.js";
import { temporaryFolder, useRedisWithTls } from "./brokers.js";
import type { Pair } from "./certificates.js";
import { eventually } from "./eventually.js";

/** The name that the sentinels have for the master. */
export const MASTER = "timeline";

const SENTINELS = 3;
/** A sentinel that had too little CPU time begins no failover for half a minute (TILT). */
const PATIENCE_MS = 60_000;
/** Time a master may be silent before its replica takes over, in ms. */
const DOWN_AFTER_MS = 2_000;

export interface SentinelOptions {
  /** Of the servers of Redis. */
  readonly password?: string;
  readonly sentinelPassword?: string;
  readonly tls?: Pair & { readonly ca: string };
}

/** The URLs of the configuration that this one becomes. */
export const urlsOf = (url: string, tlsFolder = ""): readonly string[] =>
  readCommandConfig({ REDIS_URL: url, TIMELINE_REDIS_TLS: tlsFolder }).redis.urls;

/** A master, its replica and three sentinels. */
export interface Sentinels {
  /** For REDIS_URL; unset parts are those of the group. */
  url(other?: { readonly name?: string; readonly password?: string; readonly sentinelPassword?: string }): string;
  readonly sentinels: readonly Broker[];
  /** A connection of the test's own. */
  open(server: Broker): Redis;
  /** The server that all sentinels name. */
  master(): Promise<Broker>;
  replica(): Promise<Broker>;
  /** Asks for a failover, and waits until all sentinels name another master. */
  failover(): Promise<void>;
  /** Waits until all sentinels name another master than this one. */
  replaced(former: Broker): Promise<void>;
  /** Starts an ended server again, on its data. */
  restart(server: Broker): Promise<Broker>;
  /** Waits until the master has a replica that the sentinels would choose. */
  untilReplicated(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts them, and waits until every sentinel knows the whole. */
export async function startSentinels(options: SentinelOptions = {}): Promise<Sentinels> {
  const { password = "", sentinelPassword = "", tls } = options;
  if (tls) useRedisWithTls();
  const folders: string[] = [];
  const links: Redis[] = [];
  const open = (server: Broker): Redis => {
    const secret = sentinels.some(({ port }) => port === server.port) ? sentinelPassword : password;
    const link = new Redis({
      ...{ port: server.port, maxRetriesPerRequest: null },
      ...(secret && { password: secret }),
      ...(tls && { tls: { ca: tls.ca, rejectUnauthorized: false } }),
    });
    // Tests end servers on purpose.
    link.on("error", () => undefined);
    links.push(link);
    return link;
  };
  const start = async (purpose: string, args: readonly string[], config?: string): Promise<Broker> => {
    const [dir, port] = await Promise.all([temporaryFolder(purpose), freePort()]);
    folders.push(dir);
    if (config === undefined) return startRedis({ dir, port, extraArgs: [...args, ...tlsArgs(tls, port)] });
    const configFile = join(dir, "sentinel.conf");
    await writeFile(configFile, config);
    return startRedis({ dir, port, configFile, extraArgs: [...args, ...tlsArgs(tls, port)] });
  };
  const secured = password ? ["--requirepass", password, "--masterauth", password] : [];
  const sentinels: Broker[] = [];
  const first = await start("redis", secured);
  const servers = [first, await start("redis", [...secured, "--replicaof", "127.0.0.1", String(first.port)])];
  for (let count = 0; count < SENTINELS; count++)
    sentinels.push(await start("sentinel", ["--sentinel"], configOf(first.port, options)));
  const asked = sentinels.map(open);
  const states = () => Promise.all(asked.map((link) => stateOf(link)));
  const named = async (): Promise<string[]> => [...new Set((await states()).map(({ port = "" }) => port))];
  const serverOf = (port: string): Broker => servers.find((server) => String(server.port) === port) as Broker;
  const untilReplicated = (): Promise<void> =>
    eventually(
      async () => {
        const all = await states();
        const whole = all.every(
          (of) => of["flags"] === "master" && of["num-slaves"] === "1" && of["num-other-sentinels"] === "2",
        );
        const [port = "", ...others] = await named();
        if (!whole || others.length > 0) return JSON.stringify(all);
        const replica = await open(servers.find((server) => String(server.port) !== port) as Broker).info(
          "replication",
        );
        return /master_link_status:up/.test(replica);
      },
      "every sentinel knows the master, its replica and the others",
      PATIENCE_MS,
    );
  const replaced: Sentinels["replaced"] = (former) =>
    eventually(
      async () => {
        const ports = await named();
        return (ports.length === 1 && ports[0] !== String(former.port)) || ports.join();
      },
      "all sentinels name another master",
      PATIENCE_MS,
    );
  const master = async (): Promise<Broker> => serverOf((await named())[0] as string);
  await untilReplicated();
  return {
    ...{ sentinels, open, master, replaced, untilReplicated },
    url: (other = {}) => {
      const of = { name: MASTER, password, sentinelPassword, ...other };
      const [user, query] = [
        of.password && `:${of.password}@`,
        of.sentinelPassword && `?sentinel_password=${of.sentinelPassword}`,
      ];
      const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`).join(",");
      return `${tls ? "rediss" : "redis"}+sentinel://${user}${hosts}/${of.name}${query}`;
    },
    replica: async () => {
      const now = await master();
      return servers.find(({ port }) => port !== now.port) as Broker;
    },
    async failover() {
      const former = await master();
      await asked[0]?.call("SENTINEL", "FAILOVER", MASTER);
      await replaced(former);
    },
    async restart(server) {
      const { dir, port } = server;
      const again = await startRedis({ dir, port, extraArgs: [...secured, ...tlsArgs(tls, port)] });
      servers.splice(servers.indexOf(server), 1, again);
      return again;
    },
    async stop() {
      for (const link of links) link.disconnect();
      await Promise.all([...sentinels, ...servers].map((server) => server.stop()));
      await Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true })));
    },
  };
}

async function stateOf(sentinel: Redis): Promise<Readonly<Record<string, string>>> {
  const fields = (await sentinel.call("SENTINEL", "MASTER", MASTER)) as string[] | Record<string, string>;
  if (!Array.isArray(fields)) return fields;
  return Object.fromEntries(fields.flatMap((name, at) => (at % 2 === 0 ? [[name, fields[at + 1] as string]] : [])));
}

const configOf = (port: number, { password, sentinelPassword }: SentinelOptions): string =>
  [
    `sentinel monitor ${MASTER} 127.0.0.1 ${port} 2`,
    `sentinel down-after-milliseconds ${MASTER} ${DOWN_AFTER_MS}`,
    // A failover that did not come about is begun again after twice this time.
    `sentinel failover-timeout ${MASTER} 5000`,
    ...(password ? [`sentinel auth-pass ${MASTER} ${password}`] : []),
    ...(sentinelPassword ? [`requirepass ${sentinelPassword}`, `sentinel sentinel-pass ${sentinelPassword}`] : []),
    "",
  ].join("\n");

const tlsArgs = (tls: SentinelOptions["tls"], port: number): string[] =>
  tls === undefined
    ? []
    : [
        ...["--port", "0", "--tls-port", String(port), "--tls-auth-clients", "no", "--tls-replication", "yes"],
        ...["--tls-cert-file", tls.cert, "--tls-key-file", tls.key, "--tls-ca-cert-file", tls.ca],
      ];
