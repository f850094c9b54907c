import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import {
  AckPolicy,
  DiscardPolicy,
  type JetStreamManager,
  type NatsConnection,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from "nats";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { readTopology } from "../../src/platform/nats/declared.js";
import { applyTopology, differences } from "../../src/platform/nats/topology.js";
import { Refusal } from "../../src/platform/refusals.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { privateNats, temporaryFolder } from "../support/brokers.js";

let broker: Broker;
let manager: JetStreamManager;
let connection: NatsConnection;
let close: () => Promise<void>;

beforeEach(async () => {
  broker = await privateNats();
  connection = await connectNats({ servers: [broker.url], name: "test" }, silent);
  manager = await connection.jetstreamManager();
  close = () => connection.close();
});
afterEach(async () => {
  await close();
  await broker.stop();
});

/** The changes that the log names. */
async function apply(): Promise<string[]> {
  const said: string[] = [];
  const info = (fields: object, message: string): void => {
    const { stream, consumer, changed } = fields as { stream: string; consumer?: string; changed?: string[] };
    said.push([message, stream, consumer, changed?.join("+")].filter((part) => part !== undefined).join(" "));
  };
  await applyTopology(manager, { replicas: 1 }, { ...silent, info });
  return said;
}

test("everything declared is created once; a second time nothing is changed", async () => {
  const { streams, consumers } = await readTopology();
  expect(await apply()).toHaveLength(streams.length + consumers.length);
  expect(await apply()).toEqual([]);
  for (const declared of streams)
    expect(differences(declared, (await manager.streams.info(declared.name)).config)).toEqual([]);
  for (const { stream, config } of consumers) {
    const held = (await manager.consumers.info(stream, config.durable_name as string)).config;
    expect(differences(config, held)).toEqual([]);
  }
  expect(streams.map(({ name }) => name).sort()).toEqual([
    "ACTIVITY",
    "ADVISORIES",
    "CHECKS",
    "COMPLETIONS",
    "DLQ",
    "DROPS",
    "EDGES",
    "ENGAGEMENT",
    "FANOUT",
    "GAMIFICATION",
    "KV_ANALYSES",
    "KV_ERASED",
    "KV_POSITIONS",
    "NOTIFY",
    "SHARED",
    "TIMELINE",
    "TIMELINE_EVENTS",
  ]);
});

// Invariant 10.
test("ADVISORIES captures every consumer that is declared, and its file says the same", async () => {
  const { streams, consumers } = await readTopology();
  const file = JSON.parse(await readFile("nats/streams/ADVISORIES.json", "utf8")) as StreamConfig;
  expect(streams.find(({ name }) => name === "ADVISORIES")).toEqual(file);
  for (const { stream } of consumers)
    expect(file.subjects).toContain(`$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.${stream}.*`);
});

test("an ADVISORIES stream of an older version takes the advisories of the new consumers", async () => {
  await apply();
  const held = (await manager.streams.info("ADVISORIES")).config;
  const older = ["$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.DROPS.*"];
  await manager.streams.update("ADVISORIES", { ...held, subjects: older });
  expect(await apply()).toEqual(["stream updated ADVISORIES subjects"]);
  expect((await manager.streams.info("ADVISORIES")).config.subjects).toEqual(held.subjects);
});

test("two processes that start at once both succeed", async () => {
  const url = (path: string) => JSON.stringify(pathToFileURL(join(process.cwd(), path)).href);
  const code = `
    const { connectNats } = await import(${url("src/platform/nats/connect.ts")});
    const { applyTopology } = await import(${url("src/platform/nats/topology.ts")});
    const { silent } = await import(${url("src/kernel/logger.ts")});
    const connection = await connectNats({ servers: [${JSON.stringify(broker.url)}], name: "other" }, silent);
    const manager = await connection.jetstreamManager();
    process.stdout.write("r");
    await new Promise((go) => process.stdin.once("data", go));
    await applyTopology(manager, { replicas: 1 }, silent);
    await connection.close();
    process.exit(0);`;
  const start = () =>
    spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", code], {
      env: { ...process.env, NODE_OPTIONS: "" },
      stdio: ["pipe", "pipe", "inherit"],
    });
  const children = [start(), start()];
  await Promise.all(children.map((child) => once(child.stdout, "data")));
  const ends = children.map((child) => once(child, "exit"));
  for (const child of children) child.stdin.write("go\n");
  expect((await Promise.all(ends)).map(([code]) => code)).toEqual([0, 0]);
  expect(await apply()).toEqual([]);
});

test("fields that may be updated are updated, and fields that others added stay", async () => {
  await apply();
  const held = (await manager.streams.info("DLQ")).config;
  await manager.streams.update("DLQ", { ...held, max_age: 1e15, description: "older", max_msg_size: 500_000 });
  const worker = (await manager.consumers.info("FANOUT", "worker")).config;
  await manager.consumers.update("FANOUT", "worker", { ...worker, ack_wait: 7e9 });
  const said = await apply();
  expect(said.map((line) => line.replace(/ [^ ]*$/, ""))).toEqual([
    "stream updated DLQ",
    "consumer updated FANOUT worker",
  ]);
  expect(said[0]).toMatch(/description|max_age/);
  expect(await apply()).toEqual([]);
  expect((await manager.consumers.info("FANOUT", "worker")).config.ack_wait).toBe(15e9);
});

test.each<[string, string, Partial<StreamConfig>]>([
  ["storage", "DROPS", { storage: StorageType.Memory }],
  ["retention", "FANOUT", { retention: RetentionPolicy.Limits, discard: DiscardPolicy.Old }],
])("a stream of another %s is refused, naming the stream, the field and the file", async (field, stream, change) => {
  const { streams } = await readTopology();
  const declared = streams.find(({ name }) => name === stream) as StreamConfig;
  await manager.streams.add({ ...declared, ...change, num_replicas: 1 });
  await expect(apply()).rejects.toThrow(
    new RegExp(`stream ${stream} exists with other [^(]*${field}.*nats/streams/${stream}\\.json`),
  );
});

test("a consumer that cannot be changed in place is refused by name and field", async () => {
  await apply();
  await manager.consumers.delete("DROPS", "planner");
  await manager.consumers.add("DROPS", {
    durable_name: "planner",
    ack_policy: AckPolicy.None,
    filter_subject: "drops.>",
  });
  await expect(apply()).rejects.toThrow(
    /consumer planner of DROPS exists with other [^(]*ack_policy.*nats\/consumers\/DROPS\.planner\.json/,
  );
});

test("differences: what a server leaves out is false, 0 or empty; order of keys is no difference", () => {
  expect(differences({ a: false, b: 0, c: "", d: { x: 1, y: 2 } }, { d: { y: 2, x: 1, z: false }, e: 5 })).toEqual([]);
  expect(
    differences({ a: 1, subjects: ["x"], d: { x: 1 } }, { a: 2, subjects: ["x", "y"], d: { x: 1, z: 3 } }),
  ).toEqual(["a", "subjects", "d"]);
});

const MIB = 1024 * 1024;
const bytesOf = async (stream: string) => (await manager.streams.info(stream)).config.max_bytes;

/** Starts nats-server again with a configuration of its own. */
async function withConfig(text: string): Promise<void> {
  await close();
  await broker.stop();
  const folder = await temporaryFolder("nats-config");
  const file = join(folder, "nats.conf");
  await writeFile(file, text);
  broker = await privateNats({ extraArgs: ["-c", file] });
  connection = await connectNats({ servers: [broker.url], name: "test" }, silent);
  manager = await connection.jetstreamManager();
  close = async () => {
    await connection.close();
    await rm(folder, { recursive: true, force: true });
  };
}

test.each([
  ["a small disk", "jetstream { max_file_store: 6GB }"],
  [
    "an account with a limit",
    `accounts { A { users: [{ user: a, password: a }], jetstream { max_mem: 0, max_file: 6GB } } }
     no_auth_user: a`,
  ],
])("%s: all streams are made smaller by one factor, and none is refused", async (_name, config) => {
  await withConfig(config);
  await apply();
  const { streams } = await readTopology();
  const bounded = streams.filter(({ max_bytes }) => max_bytes > 0);
  const shares = await Promise.all(bounded.map(async ({ name, max_bytes }) => (await bytesOf(name)) / max_bytes));
  expect(new Set(shares).size).toBe(1);
  expect(shares[0]).toBeGreaterThan(0.1);
  expect(shares[0]).toBeLessThan(1);
  expect((await apply()).filter((line) => line.includes("created"))).toEqual([]);
  expect(await bytesOf("FANOUT")).toBe((shares[0] as number) * 8192 * MIB);
});

// Each of these was waited for without end.
test.each([
  ["max_streams", "jetstream: { max_mem: -1, max_file: -1, max_streams: 3 }", /streams/],
  ["max_consumers", "jetstream: { max_mem: -1, max_file: -1, max_consumers: 1 }", /consumers/],
  ["max_file of an account", "jetstream: { max_mem: -1, max_file: 1MB }", /resource|storage/],
  ["the bytes of a stream", "jetstream: { max_mem: -1, max_file: -1, max_bytes_required: true }", /bytes/],
])("a limit of JetStream that leaves no room (%s) is a refusal, which names it", async (_name, limits, says) => {
  await withConfig(`jetstream {}\naccounts { A { users: [{ user: a, password: a }], ${limits} } }\nno_auth_user: a`);
  const applied = await apply().catch((error: unknown) => error);
  expect(applied).toBeInstanceOf(Refusal);
  expect(applied).toMatchObject({ message: expect.stringMatching(says), advice: expect.stringMatching(/limits/) });
});

test("a server without storage for the streams is a refusal", async () => {
  await withConfig("jetstream { max_file_store: 1MB }");
  expect(await apply().catch((error: unknown) => error)).toBeInstanceOf(Refusal);
});

test("a stream without max_bytes is given one, and one that holds more keeps what it holds", async () => {
  const { streams } = await readTopology();
  for (const name of ["DROPS", "NOTIFY"]) {
    const declared = streams.find((stream) => stream.name === name) as StreamConfig;
    await manager.streams.add({ ...declared, max_bytes: -1, num_replicas: 1 });
  }
  const body = Buffer.alloc(900_000);
  const jetstream = connection.jetstream();
  for (let count = 0; count < 4; count++) await jetstream.publish("drops.created", body);
  const scale = 1 / 8192;
  await applyTopology(manager, { replicas: 1, storageScale: scale }, silent);
  const { config, state } = await manager.streams.info("DROPS");
  expect([state.messages, config.max_bytes]).toEqual([4, state.bytes]);
  expect(await bytesOf("NOTIFY")).toBe(MIB);
  await apply();
  expect(await bytesOf("DROPS")).toBe(8192 * MIB);
});

test("max_bytes is scaled as configured", async () => {
  await applyTopology(manager, { replicas: 1, storageScale: 0.25 }, silent);
  expect([await bytesOf("DROPS"), await bytesOf("NOTIFY"), await bytesOf("COMPLETIONS")]).toEqual([
    2048 * MIB,
    256 * MIB,
    512 * MIB,
  ]);
});
