import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "@jest/globals";
import { nanos } from "nats";
import { messageId, parseEvent } from "../../src/contracts/events.js";
import { NO_DROPS } from "../../src/contracts/timelines.js";
import { type DeadLetter, deadLetterOf, deadLetterOfUnstored } from "../../src/delivery/dead-letter.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { pause } from "../../src/kernel/time.js";
import { createOperations } from "../../src/operators/dead-letters/operations.js";
import { type RedriveDeps, redrive } from "../../src/operators/dead-letters/redrive.js";
import { startDeadLetterService } from "../../src/operators/dead-letters/service.nats.js";
import { createDeadLetterStore, createLogAge } from "../../src/operators/dead-letters/store.nats.js";
import type { DeadLetterStore, StoredDeadLetter } from "../../src/operators/dead-letters/stored-dead-letter.js";
import type { NatsService } from "../../src/platform/nats/service.js";
import { deliveryOf, headersWith } from "../support/deliveries.js";
import { type NatsBench, openNats } from "../support/nats.js";

let bench: NatsBench;
let deadLetters: DeadLetterStore;
const services: NatsService[] = [];

beforeAll(async () => {
  bench = await openNats();
  deadLetters = createDeadLetterStore(bench.connection);
});
afterAll(() => bench.close());
beforeEach(async () => {
  for (const stream of ["DLQ", "DROPS", "FANOUT"]) await bench.manager.streams.purge(stream);
});
afterEach(async () => {
  await Promise.all(services.splice(0).map((service) => service.close()));
});

const failure = {
  reason: "exhausted",
  error: new AppError("failed", "no"),
  event: "drop_created",
  version: "1",
} as const;
let drops = 0;

/** An event in the log and the dead letter about it, as they are minutes after it failed; yields the dead letter's sequence. */
async function giveUp(stated: Partial<DeadLetter> = {}): Promise<number> {
  const drop_id = `d${drops++}`;
  const body = Buffer.from(JSON.stringify({ drop_id, user_id: "a", visibility: "public", created_at: 1 }));
  const headers = { traceparent: "00-aa-bb-01" };
  const logged = await bench.publish({ subject: "drops.created", id: `drop_created:${drop_id}`, body, headers });
  const delivery = deliveryOf({
    ...{ seq: logged.seq, time: Date.now(), body },
    headers: headersWith({ ...headers, "Nats-Msg-Id": `drop_created:${drop_id}` }),
  });
  const { seq } = await bench.publish({ ...deadLetterOf(delivery, 5, { ...failure, now: Date.now() }), ...stated });
  return seq;
}

function depsWith(stated: Partial<RedriveDeps> = {}): RedriveDeps {
  return {
    store: deadLetters,
    publish: bench.publish,
    logAgeMs: createLogAge(bench.connection),
    upstreams: undefined,
    now: Date.now,
    pause,
    ...stated,
  };
}

const held = async (stream: string): Promise<number> => (await bench.manager.streams.info(stream)).state.messages;
const last = (subject: string) => bench.manager.streams.getMessage("DROPS", { last_by_subj: subject });
async function read(range?: Parameters<DeadLetterStore["read"]>[0]): Promise<StoredDeadLetter[]> {
  const found: StoredDeadLetter[] = [];
  for await (const deadLetter of deadLetters.read(range)) found.push(deadLetter);
  return found;
}

test("dead letters are read oldest first, from a given sequence, with bodies on request", async () => {
  const seqs = [await giveUp(), await giveUp(), await giveUp()];
  const whole = await read({ bodies: true });
  expect(whole.map(({ summary }) => summary.seq)).toEqual(seqs);
  expect(whole.map(({ body }) => JSON.parse(Buffer.from(body).toString()).user_id)).toEqual(["a", "a", "a"]);
  const listed = await read({ after: seqs[0] });
  expect(listed.map(({ summary: { seq } }) => seq)).toEqual(seqs.slice(1));
  expect(listed.map(({ body }) => body.length)).toEqual([0, 0]);
  expect(listed[0]?.summary).toEqual(whole[1]?.summary);
  expect(await deadLetters.find(seqs[0] as number)).toEqual(
    expect.objectContaining({ summary: whole[0]?.summary, body: whole[0]?.body, storedAt: whole[0]?.storedAt }),
  );
});

test("a reader that stops early leaves no consumer behind", async () => {
  for (let count = 0; count < 3; count++) await giveUp();
  for await (const deadLetter of deadLetters.read()) {
    expect(deadLetter.summary.reason).toBe("exhausted");
    break;
  }
  const names: string[] = [];
  for await (const consumer of bench.manager.consumers.list("DLQ")) names.push(consumer.name);
  expect(names).toEqual([]);
});

test("removing a dead letter twice is no error, and it is not found any more", async () => {
  const seq = await giveUp();
  await deadLetters.remove(seq);
  await deadLetters.remove(seq);
  await deadLetters.remove(seq + 1_000);
  expect([await deadLetters.find(seq), await deadLetters.find(seq + 1_000), await held("DLQ")]).toEqual([
    undefined,
    undefined,
    0,
  ]);
});

test("the age of the log is the max_age of the stream; none means for ever", async () => {
  const { config } = await bench.manager.streams.info("DROPS");
  const age = createLogAge(bench.connection);
  expect(await age()).toBe(7 * 86_400_000);
  await bench.manager.streams.update("DROPS", { ...config, max_age: 0 });
  expect(await age()).toBe(Number.POSITIVE_INFINITY);
  await bench.manager.streams.update("DROPS", config);
});

test("a redrive inside the log's dedup window is stored again, with body and carried headers as they were", async () => {
  const seq = await giveUp();
  const original = await last("drops.created");
  expect(await redrive(depsWith(), [seq])).toMatchObject({ redriven: [seq], failed: [] });
  expect([await held("DROPS"), await held("DLQ")]).toEqual([2, 0]);
  const again = await last("drops.created");
  expect(again.seq).toBeGreaterThan(original.seq);
  expect(Buffer.from(again.data)).toEqual(Buffer.from(original.data));
  expect(again.header.get("traceparent")).toBe("00-aa-bb-01");
  expect(again.header.get("Dlq-Redrive-Count")).toBe("1");
  expect(Date.parse(again.header.get("Dlq-First-Seen"))).toBeGreaterThan(Date.now() - 60_000);
  expect(again.header.has("Timeline-Silent")).toBe(false);
});

// Invariant 1.
test("a redrive that ends between publishing and deleting, run again, has published once only", async () => {
  const seq = await giveUp();
  const killed = depsWith({ store: { ...deadLetters, remove: () => Promise.reject(new Error("killed")) } });
  expect((await redrive(killed, [seq])).failed).toHaveLength(1);
  expect([await held("DROPS"), await held("DLQ")]).toEqual([2, 1]);
  expect(await redrive(depsWith(), [seq])).toMatchObject({ redriven: [seq] });
  expect([await held("DROPS"), await held("DLQ")]).toEqual([2, 0]);
});

test("two concurrent redrives publish each dead letter once", async () => {
  const seqs = [await giveUp(), await giveUp(), await giveUp()];
  const reports = await Promise.all([redrive(depsWith(), seqs), redrive(depsWith(), seqs)]);
  expect(new Set(reports.flatMap(({ redriven }) => redriven))).toEqual(new Set(seqs));
  expect([await held("DROPS"), await held("DLQ")]).toEqual([6, 0]);
});

test("a dead letter that fails again and is redriven again is stored again", async () => {
  const first = await giveUp();
  await redrive(depsWith(), [first]);
  const { seq, header, data, time } = await last("drops.created");
  const headers = headersWith(Object.fromEntries(header.keys().map((name) => [name, header.get(name)])));
  const delivery = deliveryOf({ seq, time: time.getTime(), body: data, headers });
  const second = await bench.publish(deadLetterOf(delivery, 5, { ...failure, now: Date.now() }));
  expect((await deadLetters.find(second.seq))?.summary.redrive_count).toBe(1);
  expect(await redrive(depsWith(), [second.seq])).toMatchObject({ redriven: [second.seq] });
  expect(await held("DROPS")).toBe(3);
  expect((await last("drops.created")).header.get("Dlq-Redrive-Count")).toBe("2");
});

test("a payload of a bridge that has become valid is admitted once, also if another bridge had admitted it", async () => {
  const payload = { drop_id: "late", user_id: "a", visibility: "public", created_at: Date.now() - 1_000 };
  const body = Buffer.from(JSON.stringify(payload));
  const about = { ...failure, reason: "invalid", now: Date.now() } as const;
  const deadLetter = deadLetterOfUnstored(
    { origin: "drop_created", id: "dlq:drop_created:x", body, deliveries: 1, firstSeen: about.now },
    about,
  );
  const { seq } = await bench.publish(deadLetter);
  const admitted = { subject: "drops.created", body, id: messageId(parseEvent("drop_created", body, Date.now())) };
  await bench.publish(admitted);
  expect(await redrive(depsWith(), [seq])).toMatchObject({ redriven: [seq] });
  expect([await held("DROPS"), await held("DLQ")]).toEqual([1, 0]);
});

test("a dead letter whose stream does not take its subject is kept and reported", async () => {
  const deadLetter = await letterFor({ "Dlq-Stream": "FANOUT" });
  const nowhere = await letterFor({ "Dlq-Subject": "nobody.listens" });
  expect(await redrive(depsWith(), [deadLetter, nowhere])).toMatchObject({
    redriven: [],
    failed: [
      { seq: deadLetter, why: expect.stringContaining("another stream") },
      { seq: nowhere, why: expect.stringContaining("did not store") },
    ],
  });
  expect([await held("DROPS"), await held("FANOUT"), await held("DLQ")]).toEqual([2, 0, 2]);
});

async function letterFor(headers: Readonly<Record<string, string>>): Promise<number> {
  const found = await deadLetters.find(await giveUp());
  await deadLetters.remove(found?.summary.seq as number);
  const all = { ...Object.fromEntries(found?.headers.entries() ?? []), ...headers };
  const { "Nats-Msg-Id": id, ...rest } = all as Record<string, string>;
  const { seq } = await bench.publish({
    subject: "dlq.exhausted.drop_created",
    id: `${id}:2`,
    body: found?.body ?? Buffer.of(),
    headers: rest,
  });
  return seq;
}

async function startService(publish: RedriveDeps["publish"] = bench.publish): Promise<void> {
  const upstreams = { drops: async () => NO_DROPS, following: async () => ({ ids: [], next: "" }) };
  const operations = createOperations(depsWith({ publish, upstreams }));
  services.push(await startDeadLetterService({ nats: bench.connection, operations, version: "1.2.3", log: silent }));
}

interface Answer {
  readonly code: string;
  readonly error: string;
  readonly value: unknown;
}
async function ask(endpoint: string, request: unknown): Promise<Answer> {
  const body = typeof request === "string" ? request : JSON.stringify(request);
  const { headers, data } = await bench.connection.request(`avion.ops.dlq.${endpoint}`, body, { timeout: 5_000 });
  const header = (name: string): string => (headers?.has(name) ? headers.get(name) : "");
  const text = Buffer.from(data).toString();
  return {
    code: header("Nats-Service-Error-Code"),
    error: header("Nats-Service-Error"),
    value: text === "" ? undefined : JSON.parse(text),
  };
}

test("the service tells NATS its name, its version and its endpoints", async () => {
  await startService();
  const infos = [];
  for await (const info of await bench.connection.services.client().info("avion-dlq")) infos.push(info);
  expect(infos).toHaveLength(1);
  expect(infos[0]).toMatchObject({ name: "avion-dlq", version: "1.2.3" });
  expect(infos[0]?.endpoints.map(({ subject }) => subject).sort()).toEqual(
    ["groups", "list", "redrive", "rm", "show"].map((name) => `avion.ops.dlq.${name}`),
  );
});

test("the service lists, shows, redrives and removes", async () => {
  await startService();
  const seqs = [await giveUp(), await giveUp(), await giveUp()];
  const [first, second, third] = seqs as [number, number, number];
  expect((await ask("list", { limit: 2, after: first })).value).toMatchObject([{ seq: second }, { seq: third }]);
  expect((await ask("show", { seqs: [first] })).value).toMatchObject({ seq: first, body: { user_id: "a" } });
  expect((await ask("redrive", { seqs: [first] })).value).toMatchObject({ redriven: [first] });
  expect((await ask("rm", { seqs: [second] })).value).toEqual({ removed: [second], failed: [] });
  expect((await ask("list", "")).value).toMatchObject([{ seq: third }]);
  expect([await held("DROPS"), await held("DLQ")]).toEqual([4, 1]);
});

test("the service answers a bad request with an error in the headers", async () => {
  await startService();
  expect(await ask("list", "nonsense")).toMatchObject({ code: "400", error: expect.stringContaining("not JSON") });
  expect(await ask("redrive", { all: 1 })).toMatchObject({ code: "400", error: expect.stringContaining("all: ") });
  expect(await ask("show", { seqs: [99] })).toMatchObject({ code: "404", error: expect.stringContaining("99") });
});

test("the service answers 500 with the cause if the DLQ is missing", async () => {
  await startService();
  const { config } = await bench.manager.streams.info("DLQ");
  await bench.manager.streams.delete("DLQ");
  const answer = await ask("list", {});
  await bench.manager.streams.add(config);
  expect(answer).toMatchObject({ code: "500", error: expect.stringContaining("the service creates it") });
});

test("a redrive longer than three seconds is answered, goes on, and excludes another one", async () => {
  let release = (): void => undefined;
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const seqs = [await giveUp(), await giveUp()];
  await startService(async (message) => {
    if (message.id.startsWith(`redrive:${seqs[1]}:`)) await gate;
    return bench.publish(message);
  });
  expect((await ask("redrive", { all: true })).value).toMatchObject({ running: true, redriven: [seqs[0]] });
  expect(await ask("redrive", { all: true })).toMatchObject({ code: "409", error: expect.stringContaining("already") });
  release();
  while ((await held("DLQ")) > 0) await pause(20);
  expect(await held("DROPS")).toBe(4);
});

test("dead letters of half a megabyte are listed, grouped and shown whole", async () => {
  const body = Buffer.alloc(500_000, "x");
  const seqs: number[] = [];
  for (let count = 0; count < 5; count++) seqs.push(await giveUp({ body }));
  expect((await read({ bodies: true })).map(({ body: { length } }) => length)).toEqual(seqs.map(() => 500_000));
  expect((await deadLetters.find(seqs[0] as number))?.body.length).toBe(500_000);
});

test("the age of the log is in milliseconds", async () => {
  const { config } = await bench.manager.streams.info("DROPS");
  await bench.manager.streams.update("DROPS", { ...config, max_age: nanos(1_800_000) });
  expect(await createLogAge(bench.connection)()).toBe(1_800_000);
  await bench.manager.streams.update("DROPS", config);
});
