import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { connect as connectTcp } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { afterEach, expect } from "@jest/globals";
import { Redis } from "ioredis";
import { AckPolicy, connect, StringCodec } from "nats";
import { type Broker, findBroker, startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import { alive, freeze, privateNats, privateRedis, temporaryFolder, withBrokers } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { quickTest, slowTest } from "../support/suite.js";

const API = pathToFileURL(join(process.cwd(), "src/sandbox/brokers/index.ts")).href;
const cleanups: Array<() => unknown> = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function folder(purpose: string): Promise<string> {
  const dir = await temporaryFolder(purpose);
  cleanups.push(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

function kept(broker: Broker): Broker {
  cleanups.push(() => broker.stop());
  return broker;
}

async function withRedis<T>(broker: Broker, work: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(broker.url);
  try {
    return await work(client);
  } finally {
    client.disconnect();
  }
}

function accepts(port: number, host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTcp({ port, host, timeout: 1_000 }, () => resolve(true));
    socket.once("error", () => resolve(false));
    socket.once("close", () => resolve(false));
    socket.once("timeout", () => socket.destroy());
    socket.once("connect", () => socket.destroy());
  });
}

/** Runs code against the brokers' interface in another node process and yields its printed lines. */
function otherProcess(code: string, env: NodeJS.ProcessEnv = {}): { child: ChildProcess; line: () => Promise<string> } {
  const source = `import * as api from ${JSON.stringify(API)};\n${code}`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", source], {
    env: { ...process.env, NODE_OPTIONS: "", ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  cleanups.push(() => child.kill("SIGKILL"));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return { child, line: async () => (await lines.next()).value ?? "" };
}

quickTest("both servers start, answer and stop", async () => {
  let pids: number[] = [];
  await withBrokers(async ({ redis, nats }) => {
    pids = [redis.pid, nats.pid];
    expect(await withRedis(redis, (client) => client.ping())).toBe("PONG");
    const connection = await connect({ servers: nats.url });
    expect(connection.info?.jetstream).toBe(true);
    expect(connection.info?.version).toBe(nats.version);
    await connection.close();
    // A kept-alive connection would hold the test process for some seconds more.
    const headers = { connection: "close" };
    const varz = (await (await fetch(`${nats.monitorUrl}/varz`, { headers })).json()) as {
      max_payload: number;
      http_host: string;
    };
    expect(varz.max_payload).toBe(1_048_576);
    expect(varz.http_host).toBe("127.0.0.1");
    expect(await accepts(redis.port, "127.0.0.1")).toBe(true);
    // Any other loopback address would be served by a server that listens everywhere.
    expect(await accepts(redis.port, "127.0.0.2")).toBe(false);
    expect(await accepts(nats.port, "127.0.0.2")).toBe(false);
  });
  for (const pid of pids) expect(await alive(pid)).toBe(false);
});

quickTest("stop removes a private folder, and may be called twice", async () => {
  const redis = await privateRedis();
  expect(existsSync(redis.dir)).toBe(true);
  await redis.stop();
  await redis.stop();
  expect(existsSync(redis.dir)).toBe(false);
  expect(await redis.exited).toEqual({ code: 0, signal: null });
});

quickTest("redis keeps its data across a restart on the same folder and port", async () => {
  const dir = await folder("redis");
  const first = kept(await startRedis({ dir, appendonly: true }));
  await withRedis(first, (client) => client.set("post", "kept"));
  await first.stop();
  const second = kept(await startRedis({ dir, port: first.port, appendonly: true }));
  expect(second.port).toBe(first.port);
  expect(await withRedis(second, (client) => client.get("post"))).toBe("kept");
});

quickTest("nats keeps its stream across kill -9 and a restart on the same folder and port", async () => {
  const dir = await folder("nats");
  const first = kept(await startNats({ dir }));
  const before = await connect({ servers: first.url, reconnect: false });
  const manager = await before.jetstreamManager();
  await manager.streams.add({ name: "POSTS", subjects: ["posts.>"] });
  await manager.consumers.add("POSTS", { durable_name: "fanout", ack_policy: AckPolicy.Explicit });
  await before.jetstream().publish("posts.created", StringCodec().encode("kept"));
  first.kill("SIGKILL");
  expect(await first.exited).toEqual({ code: null, signal: "SIGKILL" });
  await before.closed();

  const second = kept(await startNats({ dir, port: first.port }));
  const after = await connect({ servers: second.url });
  const message = await (await after.jetstream().consumers.get("POSTS", "fanout")).next();
  expect(message?.string()).toBe("kept");
  await after.close();
});

quickTest("servers run beside each other", async () => {
  const [one, two, ...others] = await Promise.all([privateRedis(), privateRedis(), privateNats(), privateNats()]);
  const started = [one, two, ...others];
  started.forEach(kept);
  expect(new Set(started.map((broker) => broker.port)).size).toBe(4);
  await withRedis(one, (client) => client.set("who", "one"));
  expect(await withRedis(two, (client) => client.get("who"))).toBeNull();
});

quickTest("signals reach the real server, and a stopped server can still be ended", async () => {
  const redis = kept(await privateRedis());
  await freeze(redis);
  redis.kill("SIGCONT");
  expect(await withRedis(redis, (client) => client.ping())).toBe("PONG");
  redis.kill("SIGSTOP");
  await redis.stop();
  expect(await alive(redis.pid)).toBe(false);
});

quickTest("a port that is taken is refused with the reason", async () => {
  const redis = kept(await privateRedis());
  await expect(privateRedis({ port: redis.port })).rejects.toThrow(
    /port \d+ is taken.*last lines of.*Address already/s,
  );
  await expect(privateNats({ port: redis.port })).rejects.toThrow(/port \d+ is taken/);
  expect(await withRedis(redis, (client) => client.ping())).toBe("PONG");
});

quickTest("a start that fails shows the last lines of the log", async () => {
  await expect(privateRedis({ extraArgs: ["--no-such-setting", "1"] })).rejects.toThrow(/no-such-setting/);
  await expect(privateNats({ extraArgs: ["-c", "/no-such-file"] })).rejects.toThrow(/no-such-file/);
});

const START_BOTH = `
  const redis = await api.startRedis({ dir: process.env.DIR + "/redis" });
  const nats = await api.startNats({ dir: process.env.DIR + "/nats" });
  console.log(JSON.stringify([redis.pid, nats.pid]));
`;

quickTest("kill -9 of the parent leaves no server behind, even a stopped one", async () => {
  const parent = otherProcess(START_BOTH, { DIR: await folder("parent") });
  const pids = JSON.parse(await parent.line()) as number[];
  for (const pid of pids) expect(await alive(pid)).toBe(true);
  process.kill(pids[1] as number, "SIGSTOP");
  parent.child.kill("SIGKILL");
  for (const pid of pids) await eventually(async () => !(await alive(pid)), `end of server ${pid}`);
});

quickTest("a missing server is answered by what to install on each system", async () => {
  const env = { PATH: "", HOME: await folder("home") };
  for (const name of ["redis", "nats"] as const) {
    const error = (await findBroker(name, { env }).catch((reason: unknown) => reason)) as Error;
    for (const system of ["Debian", "Fedora", "Arch", "Alpine", "macOS"]) expect(error.message).toContain(system);
    expect(error.message).toContain(`AVION_${name.toUpperCase()}_SERVER`);
  }
});

quickTest("a binary named in the environment wins, and a wrong one is an error", async () => {
  const real = await findBroker("nats");
  const env = { ...process.env, AVION_NATS_SERVER: real.command };
  expect(await findBroker("nats", { env })).toMatchObject({ command: real.command, origin: "path" });
  const wrong = { ...process.env, AVION_REDIS_SERVER: "/nowhere/redis-server" };
  await expect(findBroker("redis", { env: wrong })).rejects.toThrow("/nowhere/redis-server");
});

slowTest(
  "two processes fetching into a fresh cache fetch once",
  async () => {
    const installed = await findBroker("nats").catch(() => undefined);
    if (spawnSync("apt-get", ["--version"]).status !== 0 || installed?.origin === "path") {
      console.log("skipped: fetching needs apt-get, and a machine without a nats-server of its own");
      return;
    }
    const cache = await folder("cache");
    const code = `
    const lines = [];
    const { origin, command } = await api.findBroker("nats", { onProgress: (text) => lines.push(text) });
    console.log(JSON.stringify({ origin, command, lines }));
  `;
    const runs = [1, 2].map(() => otherProcess(code, { XDG_CACHE_HOME: cache }));
    type Found = { origin: string; command: string; lines: string[] };
    const found = await Promise.all(runs.map(async (run) => JSON.parse(await run.line()) as Found));
    expect(found.map(({ origin }) => origin).sort()).toEqual(["cache", "debian"]);
    for (const { command, lines } of found) {
      expect(command.startsWith(cache)).toBe(true);
      expect(lines.length).toBeGreaterThan(0);
    }
  },
  180_000,
);
