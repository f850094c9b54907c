import { afterEach, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { freeze } from "../support/brokers.js";
import { startRedisCluster } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";

const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

const KEY = "{a key}count";

interface Scene {
  readonly scripts: Scripts;
  readonly master: Broker;
  readonly replica: Broker | undefined;
  linkTo(server: Broker): Redis;
}

async function open(replicas: boolean): Promise<Scene> {
  const cluster = await startRedisCluster({ replicas });
  closes.push(() => cluster.stop());
  const client = connectRedis(cluster.urls.split(","), silent);
  closes.push(() => client.disconnect());
  await eventually(() => client.status === "ready", "the cluster is connected");
  const scripts = createScripts(client);
  await scripts.command("set", (one) => one.set(KEY, 0));
  const linkTo = ({ url }: Broker): Redis => {
    const link = new Redis(url);
    closes.push(() => link.disconnect());
    return link;
  };
  const holds = await Promise.all(cluster.masters.map(async (one) => (await linkTo(one).dbsize()) > 0));
  const at = holds.indexOf(true);
  return { scripts, master: cluster.masters[at] as Broker, replica: cluster.replicas[at], linkTo };
}

const increase = (scripts: Scripts): Promise<unknown> =>
  scripts.command("incr", (client) => client.incr(KEY)).catch((error: { code?: string }) => error.code);

// Invariant 2.
test("in a cluster a command under way when its connection dies is an outage, and is never sent again", async () => {
  const { scripts, master, linkTo } = await open(false);
  const link = linkTo(master);
  // A blocking pop holds the connection, so that the write behind it is sent but not yet run.
  const held = scripts.command("blpop", (client) => client.blpop("{a key}nothing", 0)).catch((error) => error.code);
  const behind = increase(scripts);
  await eventually(async () => /cmd=blpop/.test(String(await link.client("LIST"))), "the pop waits");
  await link.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  expect(await Promise.all([held, behind])).toEqual(["unavailable", "unavailable"]);
  await eventually(async () => (await increase(scripts)) === 1, "the cluster takes writes");
});

// Invariant 2.
test("a master of a cluster that falls silent is left for the replica that takes over; nothing is sent again", async () => {
  const { scripts, master, replica, linkTo } = await open(true);
  const successor = linkTo(replica as Broker);
  await freeze(master);
  closes.push(() => master.kill("SIGCONT"));
  const lost = Array.from({ length: 5 }, () => increase(scripts));
  expect(await Promise.all(lost)).toEqual(lost.map(() => "unavailable"));
  await eventually(async () => /role:master/.test(await successor.info("replication")), "the replica takes over");
  let done = 0;
  await eventually(async () => {
    done = Number(await increase(scripts)) || done;
    return done > 0;
  }, "the cluster takes writes");
  expect(done).toBe(1);
});
