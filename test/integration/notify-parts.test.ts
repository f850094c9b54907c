import { afterEach, beforeEach, expect, test } from "@jest/globals";
import type { JetStreamManager } from "nats";
import { ALL_NOTIFY_PARTS, notifyPartOf } from "../../src/contracts/notify-parts.js";
import { notifySubject } from "../../src/contracts/subjects.js";
import { silent } from "../../src/kernel/logger.js";
import { natsChecks } from "../../src/operators/doctor/index.js";
import { presentParts, removeOldParts } from "../../src/platform/nats/notify-streams.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { watchTopology } from "../../src/platform/nats/watch-topology.js";
import { eventually } from "../support/eventually.js";
import { natsOfFile } from "../support/nats-of-file.js";

const bench = natsOfFile();

const declare = (notifyParts: number): Promise<void> =>
  applyTopology(bench.manager, { replicas: 1, notifyParts }, silent);
const present = async (): Promise<string[]> => (await presentParts(bench.connection)).map(({ part }) => part.stream);
const numbered = (count: number): string[] => Array.from({ length: count }, (_, part) => `NOTIFY-${part}`);
const messagesOf = async (stream: string): Promise<number> => (await bench.manager.streams.info(stream)).state.messages;

let published = 0;
const sendAs = (parts: number, user: string) =>
  createPublisher(bench.connection, { notifyParts: parts }).publish({
    ...{ subject: notifySubject(user), body: "{}", id: `${published++}` },
  });

beforeEach(() => declare(1));
afterEach(async () => {
  for (const stream of await present()) await bench.manager.streams.delete(stream);
});

test("one part is declared as ever, and several as it but for their names and subjects", async () => {
  const { config: whole } = await bench.manager.streams.info("NOTIFY");
  expect([await present(), whole.subjects, whole.republish]).toMatchObject([
    ["NOTIFY"],
    ["notify.user.*"],
    { src: "notify.user.>", dest: "live.user.>" },
  ]);
  await declare(4);
  expect(await present()).toEqual(["NOTIFY", ...numbered(4)]);
  const { config } = await bench.manager.streams.info("NOTIFY-2");
  expect(config).toEqual({
    ...whole,
    name: "NOTIFY-2",
    subjects: ["notify.2.user.*"],
    republish: { ...whole.republish, src: "notify.2.user.>" },
  });
});

test("a part stores its users' notifications, which are republished as those of one stream", async () => {
  await declare(4);
  const heard: (string | undefined)[][] = [];
  const live = bench.connection.subscribe("live.user.*", {
    callback: (_, { subject, headers }) => void heard.push([subject, headers?.get("Nats-Stream")]),
  });
  await bench.connection.flush();
  for (const user of ["ada", "bob", "örjan"]) {
    const { stream } = notifyPartOf(user, 4);
    expect((await sendAs(4, user)).stream).toBe(stream);
    await eventually(() => heard.length === 1, "it is republished");
    expect(heard.splice(0)).toEqual([[notifySubject(user).replace("notify", "live"), stream]]);
  }
  live.unsubscribe();
  expect(await messagesOf("NOTIFY")).toBe(0);
});

test.each([
  [1, 4],
  [4, 1],
  [8, 2],
])("with %i parts and then %i those of before are removed, but not while they hold messages", async (before, after) => {
  await declare(before);
  if (before > 1) await bench.manager.streams.delete("NOTIFY");
  await sendAs(before, "ada");
  await declare(after);
  const own = after === 1 ? ["NOTIFY"] : numbered(after);
  const { stream: held } = notifyPartOf("ada", before);
  await removeOldParts(bench.connection, { count: after, log: silent, windowMs: 0 });
  expect((await present()).sort()).toEqual([held, ...own].sort());
  await bench.manager.streams.purge(held);
  await removeOldParts(bench.connection, { count: after, log: silent, windowMs: 0 });
  expect(await present()).toEqual(own);
});

test("an old part stays until nothing was stored there for ten minutes", async () => {
  await sendAs(1, "ada");
  await bench.manager.streams.purge("NOTIFY");
  await declare(4);
  await removeOldParts(bench.connection, { count: 4, log: silent });
  await removeOldParts(bench.connection, { count: 1, log: silent });
  expect(await present()).toEqual(["NOTIFY", ...numbered(4)]);
  const now = Date.now;
  try {
    Date.now = () => now() + 9 * 60_000;
    await removeOldParts(bench.connection, { count: 4, log: silent });
    expect(await present()).toContain("NOTIFY");
    Date.now = () => now() + 11 * 60_000;
    await removeOldParts(bench.connection, { count: 4, log: silent });
  } finally {
    Date.now = now;
  }
  expect(await present()).toEqual(numbered(4));
});

test("finding the parts takes one request, and one for each that exists", async () => {
  await declare(4);
  const asked: string[] = [];
  const requests = bench.connection.subscribe("$JS.API.STREAM.>", {
    callback: (_, { subject }) => void asked.push(subject.slice("$JS.API.STREAM.".length)),
  });
  await bench.connection.flush();
  expect(await present()).toHaveLength(5);
  await bench.connection.flush();
  requests.unsubscribe();
  expect(asked.sort()).toEqual(["INFO.NOTIFY", ...numbered(4).map((stream) => `INFO.${stream}`), "NAMES"]);
});

// Invariant 7.
test("what a process of before publishes after its part was removed fails, and is stored when it is sent again", async () => {
  await declare(4);
  const apply = (manager: JetStreamManager) => applyTopology(manager, { replicas: 1 }, silent);
  const watch = await watchTopology({ connection: bench.connection, apply, log: silent });
  try {
    await removeOldParts(bench.connection, { count: 4, log: silent, windowMs: 0 });
    expect(await present()).toEqual(numbered(4));
    const old = createPublisher(bench.connection, { noStream: () => watch.check() });
    const message = { subject: notifySubject("ada"), body: "{}", id: "again" };
    await expect(old.publish(message)).rejects.toMatchObject({ code: "unavailable" });
    await eventually(async () => {
      const result = await old.publish(message).catch(() => undefined);
      return result?.stream === "NOTIFY";
    }, "it is stored");
    expect(await messagesOf("NOTIFY")).toBe(1);
  } finally {
    watch.close();
  }
});

test("doctor names parts of another number", async () => {
  await declare(2);
  const checks = natsChecks({ servers: [bench.broker.url], name: "doctor" }, 2);
  const findings = (await Promise.all(checks.map((check) => check()))).flat();
  const parts = findings.filter(({ what }) => ALL_NOTIFY_PARTS.some(({ stream }) => what === `stream ${stream}`));
  expect(parts.map(({ what, state }) => [what, state])).toEqual([
    ["stream NOTIFY-0", "ok"],
    ["stream NOTIFY-1", "ok"],
    ["stream NOTIFY", "warning"],
  ]);
});
