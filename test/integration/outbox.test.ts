import { rm } from "node:fs/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { connect, DiscardPolicy, type NatsConnection, type StreamConfig } from "nats";
import type { OutboxEvent } from "../../src/contracts/outbox.js";
import { silent } from "../../src/kernel/logger.js";
import { HOUR } from "../../src/kernel/time.js";
import { createDeadLetterEvent } from "../../src/outbox/dead-letter-event.js";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import { createPublishEvent } from "../../src/outbox/publish.nats.js";
import { type Relay, type RelayDeps, startRelay } from "../../src/outbox/relay.js";
import { createOutboxStore, type OutboxStore } from "../../src/outbox/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { type Broker, startNats } from "../../src/sandbox/brokers/index.js";
import { temporaryFolder } from "../support/brokers.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/eventually.js";

/** Waits no seconds before a refused event is tried again. */
const patient = (store: OutboxStore): OutboxStore => ({ ...store, refuse: (id) => store.refuse(id, 1) });

const QUIET = { published: () => undefined, deadLettered: () => undefined, failed: () => undefined };

describe.each(DATABASES)("the outbox on $name", ({ start }) => {
  let server: DatabaseServer;
  let db: Db;
  let folder: string;
  let nats: Broker;
  let connection: NatsConnection;
  const relays: Relay[] = [];

  beforeAll(async () => {
    folder = await temporaryFolder("outbox");
    [server, nats] = await Promise.all([start(), startNats({ dir: folder })]);
    connection = await connect({ servers: nats.url, maxReconnectAttempts: -1, reconnectTimeWait: 50 });
  });
  beforeEach(async () => {
    db = await server.emptyDatabase([OUTBOX_MIGRATIONS]);
    const manager = await connection.jetstreamManager();
    await manager.streams.delete("LOG").catch(() => undefined);
    await manager.streams.add({ name: "LOG", subjects: ["log.>"] });
    await manager.streams.delete("DLQ").catch(() => undefined);
    await manager.streams.add({ name: "DLQ", subjects: ["dlq.>"] });
  });
  afterEach(async () => {
    await Promise.all(relays.splice(0).map((relay) => relay.close()));
  });
  afterAll(async () => {
    await server.stop();
    await connection.close();
    await nats.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const relay = (options: Partial<RelayDeps> = {}): Relay => {
    const publish = createPublishEvent(createPublisher(connection).publish);
    const started = startRelay({
      store: patient(createOutboxStore(db, "posts")),
      publish,
      deadLetter: createDeadLetterEvent({
        source: "posts",
        storeDeadLetter: async (deadLetter) => void (await createPublisher(connection).publish(deadLetter)),
        version: "1.2.3",
      }),
      // Nobody wakes these relays; the usual second between two looks would only be waited for.
      lookEveryMs: 20,
      log: silent,
      observe: QUIET,
      ...options,
    });
    relays.push(started);
    return started;
  };

  const write = async (key: string, body: string, source = "posts"): Promise<void> => {
    await db.query(
      "INSERT INTO public.outbox (source, key, subject, message_id, body) VALUES ($1, $2, 'log.it', $3, $4)",
      [source, key, `${key}:${body}`, JSON.stringify({ key, body })],
    );
  };

  /** An event with something that NATS does not take. */
  const writeOdd = async (odd: { subject?: string; body?: string; traceparent?: string; messageId?: string }) => {
    const { subject = "log.it", body = "{}", traceparent = null, messageId = "odd" } = odd;
    await db.query(
      "INSERT INTO public.outbox (source, key, subject, message_id, body, traceparent) VALUES ('posts', 'a', $1, $2, $3, $4)",
      [subject, messageId, body, traceparent],
    );
  };

  const storedDeadLetters = async () => {
    const manager = await connection.jetstreamManager();
    const { state } = await manager.streams.info("DLQ");
    return Promise.all(
      Array.from({ length: state.messages }, (_, n) => manager.streams.getMessage("DLQ", { seq: state.first_seq + n })),
    );
  };

  const log = async (): Promise<{ key: string; body: string }[]> => {
    const manager = await connection.jetstreamManager();
    const { state } = await manager.streams.info("LOG");
    const found: { key: string; body: string }[] = [];
    for (let seq = 1; seq <= state.last_seq; seq++) {
      found.push(JSON.parse((await manager.streams.getMessage("LOG", { seq })).string()));
    }
    return found;
  };

  const waiting = async (): Promise<number> => (await createOutboxStore(db, "posts").backlog()).waiting;

  // Invariant 1.
  test("several relays publish every event once, and those of a key in their order", async () => {
    const KEYS = 20;
    const EACH = 15;
    const several = [relay(), relay(), relay()];
    const writeAll = async (key: number): Promise<void> => {
      for (let n = 0; n < EACH; n++) {
        await write(`k${key}`, String(n).padStart(3, "0"));
        for (const one of several) one.wake();
      }
    };
    await Promise.all(Array.from({ length: KEYS }, (_, key) => writeAll(key)));
    await eventually(async () => (await waiting()) === 0, "everything is published");
    const published = await log();
    expect(published).toHaveLength(KEYS * EACH);
    for (let key = 0; key < KEYS; key++) {
      const own = published.filter((event) => event.key === `k${key}`).map(({ body }) => body);
      expect(own).toEqual([...own].sort());
      expect(new Set(own).size).toBe(EACH);
    }
  });

  test("a relay that hangs with claimed events delays no other key, and keeps the order of its own", async () => {
    await write("a", "1");
    let hanging = 0;
    relay({
      publish: (): Promise<void> => {
        hanging += 1;
        return new Promise(() => undefined);
      },
    });
    await eventually(() => hanging === 1, "the first relay has the event in hand");
    relays.length = 0;
    await write("a", "2");
    await write("b", "1");
    const store = createOutboxStore(db, "posts");
    expect((await store.claim(10, 1_000)).map(({ key }) => key)).toEqual(["b"]);
  });

  test("an event of another service is left to its own relay", async () => {
    await write("a", "1", "users");
    await write("a", "2", "posts");
    relay();
    await eventually(async () => (await waiting()) === 0, "the own event is published");
    expect(await log()).toEqual([{ key: "a", body: "2" }]);
  });

  test("a NOTIFY of another process wakes a relay that would not poll yet", async () => {
    const woken = relay({ lookEveryMs: HOUR });
    await createOutboxStore(db, "posts").onNotified(woken.wake);
    await write("a", "1");
    await createOutboxStore(db, "posts").notifyRelays();
    await eventually(async () => (await log()).length === 1, "the event is published");
  });

  // Invariant 1.
  test("an event that was published and not marked is published again under its id, and stored once", async () => {
    await write("a", "1");
    const store = createOutboxStore(db, "posts");
    let died = false;
    const dying: RelayDeps["store"] = {
      ...store,
      markPublished: async (ids) => {
        if (died) return store.markPublished(ids);
        died = true;
        await store.release(ids);
        throw new Error("died before the mark");
      },
    };
    relay({ store: dying });
    await eventually(async () => (await waiting()) === 0, "the event is marked");
    expect(died).toBe(true);
    expect(await log()).toHaveLength(1);
  });

  // Invariant 1.
  test("while NATS is unavailable events wait, and go out in their order once it is back", async () => {
    // An acknowledgement that does not come takes its whole timeout.
    const hasty = createPublisher(connection, { timeoutMs: 500 });
    let failed = 0;
    const publishing = relay({
      publish: createPublishEvent(hasty.publish),
      observe: { ...QUIET, failed: () => void failed++ },
    });
    await write("a", "1");
    await eventually(async () => (await waiting()) === 0, "the first event is published");
    await nats.stop();
    for (const body of ["2", "3", "4"]) await write("a", body);
    publishing.wake();
    await eventually(() => failed >= 3, "the relay fails again and again", 30_000);
    expect(await waiting()).toBe(3);
    nats = await startNats({ dir: folder, port: nats.port });
    await eventually(async () => (await waiting()) === 0, "the others are published", 30_000);
    expect((await log()).map(({ body }) => body)).toEqual(["1", "2", "3", "4"]);
  });

  test("an event that can never be published delays no other", async () => {
    const publish = createPublishEvent(createPublisher(connection).publish);
    const refusing = async (event: OutboxEvent): Promise<void> => {
      if (event.key === "bad") throw new Error("never");
      await publish(event);
    };
    relay({ publish: refusing, lookEveryMs: HOUR });
    await write("bad", "1");
    for (let n = 0; n < 20; n++) await write(`k${n}`, "1");
    relays[0]?.wake();
    await eventually(async () => (await waiting()) === 1, "all others are published");
    expect(await log()).toHaveLength(20);
  });

  // Invariant 1.
  test("an event too large for a message is dead-lettered, cut, and its key goes on", async () => {
    const body = JSON.stringify("x".repeat(1_200_000));
    await writeOdd({ subject: "drops.created", body });
    await write("a", "2");
    relay();
    await eventually(async () => (await waiting()) === 0, "nothing waits");
    expect(await log()).toEqual([{ key: "a", body: "2" }]);
    const [deadLetter, ...more] = await storedDeadLetters();
    expect(more).toEqual([]);
    expect([deadLetter?.subject, deadLetter?.string()]).toEqual(["dlq.toolarge.drop_created", body.slice(0, 65_536)]);
    const header = (name: string) => deadLetter?.header.get(name);
    expect(["Dlq-Reason", "Dlq-Size", "Dlq-Subject", "Dlq-Msg-Id", "Dlq-Stream", "Dlq-Deliveries"].map(header)).toEqual(
      ["toolarge", String(body.length), "drops.created", "odd", "DROPS", "1"],
    );
  });

  test.each<[string, Parameters<typeof writeOdd>[0]]>([
    ["a subject with a space", { subject: "log.a b" }],
    ["a subject with a wildcard", { subject: "log.>" }],
    ["a subject that is empty", { subject: "" }],
    ["a header of two lines", { traceparent: "00\r\nInjected: 1" }],
    ["a message id of two lines", { messageId: "a\r\nb" }],
  ])("%s is dead-lettered at once as poison, and its key goes on", async (_, odd) => {
    await writeOdd({ body: '{"as":"it was"}', ...odd });
    await write("a", "2");
    relay();
    await eventually(async () => (await waiting()) === 0, "nothing waits");
    expect(await log()).toEqual([{ key: "a", body: "2" }]);
    expect((await storedDeadLetters()).map((stored) => [stored.subject, stored.string()])).toEqual([
      ["dlq.poison.outbox_event", '{"as":"it was"}'],
    ]);
  });

  // Invariant 1.
  test("an event its stream refuses is tried five times, and then dead-lettered", async () => {
    const manager = await connection.jetstreamManager();
    const { config } = await manager.streams.info("LOG");
    await manager.streams.update("LOG", { ...config, sealed: true } as Partial<StreamConfig>);
    await write("a", "1");
    relay({ lookEveryMs: 20 });
    await eventually(async () => (await waiting()) === 0, "nothing waits");
    const [deadLetter] = await storedDeadLetters();
    expect([deadLetter?.subject, deadLetter?.header.get("Dlq-Deliveries")]).toEqual(["dlq.poison.outbox_event", "5"]);
  });

  // Invariant 1.
  test("while a stream is full or missing an event waits", async () => {
    const manager = await connection.jetstreamManager();
    await manager.streams.add({ name: "FULL", subjects: ["full.>"], max_msgs: 1, discard: DiscardPolicy.New });
    await connection.jetstream().publish("full.it", "{}");
    await writeOdd({ subject: "full.it", messageId: "one" });
    await db.query("UPDATE public.outbox SET key = 'full'");
    await writeOdd({ subject: "missing.it", messageId: "two" });
    let failed = 0;
    relay({ observe: { ...QUIET, failed: () => void failed++ } });
    await eventually(() => failed >= 6, "it was tried more often than what is refused is");
    expect([await waiting(), await storedDeadLetters()]).toEqual([2, []]);
    await manager.streams.purge("FULL");
    await manager.streams.add({ name: "MISSING", subjects: ["missing.>"] });
    await eventually(async () => (await waiting()) === 0, "both are published");
    expect(await storedDeadLetters()).toEqual([]);
    await Promise.all(["FULL", "MISSING"].map((name) => manager.streams.delete(name)));
  });

  test("a relay that dies after storing a dead letter stores no second one", async () => {
    await writeOdd({ subject: "log.>" });
    const store = patient(createOutboxStore(db, "posts"));
    let died = false;
    const markPublished = async (ids: readonly number[]): Promise<void> => {
      if (died) return store.markPublished(ids);
      died = true;
      throw new Error("died before the mark");
    };
    relay({ store: { ...store, markPublished }, lookEveryMs: 20 });
    await eventually(async () => (await waiting()) === 0, "the event is marked");
    expect([died, (await storedDeadLetters()).length]).toEqual([true, 1]);
  });

  // Invariant 1.
  test("while the DLQ takes no dead letter the event stays, and other keys go on", async () => {
    const manager = await connection.jetstreamManager();
    await manager.streams.delete("DLQ");
    await writeOdd({ subject: "log.>" });
    await write("a", "2");
    await write("b", "1");
    relay({ lookEveryMs: 20 });
    await eventually(async () => (await waiting()) === 2, "the other key is published");
    expect(await log()).toEqual([{ key: "b", body: "1" }]);
    await manager.streams.add({ name: "DLQ", subjects: ["dlq.>"] });
    await eventually(async () => (await waiting()) === 0, "everything goes on");
    expect((await storedDeadLetters()).length).toBe(1);
    expect(await log()).toHaveLength(2);
  });

  test("a row of an older version, without an owner, is published in the order of its key", async () => {
    await write("a", "1");
    await db.query(
      `INSERT INTO public.outbox (source, owner, key, subject, message_id, body)
       VALUES ('posts', '0', 'a', 'log.it', 'a:2', '{"key":"a","body":"2"}')`,
    );
    relay();
    await eventually(async () => (await waiting()) === 0, "both are published");
    expect((await log()).map(({ body }) => body)).toEqual(["1", "2"]);
  });

  test("events published long ago are removed, waiting ones are not", async () => {
    await write("a", "1");
    await write("b", "1");
    const store = createOutboxStore(db, "posts");
    const [first] = await store.claim(1, 0);
    await store.markPublished([first?.id as number]);
    expect(await store.prune(HOUR, 10)).toBe(0);
    expect(await store.prune(-1, 10)).toBe(1);
    expect(await waiting()).toBe(1);
  });
});
