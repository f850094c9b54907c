import { rm } from "node:fs/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { connect, type NatsConnection } from "nats";
import { type Broker, startNats } from "../../src/brokers/index.js";
import { silent } from "../../src/kernel/logger.js";
import { HOUR } from "../../src/kernel/time.js";
import type { OutboxEvent } from "../../src/outbox/ports.js";
import { createPublishEvent } from "../../src/outbox/publish.nats.js";
import { type Relay, type RelayDeps, startRelay } from "../../src/outbox/relay.js";
import { createNotifyRelays, createOutboxStore, OUTBOX_MIGRATIONS, wakeChannel } from "../../src/outbox/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { createPublish } from "../../src/platform/nats/publish.js";
import { temporaryFolder } from "../support/brokers.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/facts.js";

const QUIET = { published: () => undefined, failed: () => undefined };

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
    db = await server.newDatabase();
    await migrate(db, [OUTBOX_MIGRATIONS], silent);
    const manager = await connection.jetstreamManager();
    await manager.streams.delete("LOG").catch(() => undefined);
    await manager.streams.add({ name: "LOG", subjects: ["log.>"] });
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
    const publish = createPublishEvent(createPublish(connection.jetstream()));
    const started = startRelay({
      store: createOutboxStore(db, "posts"),
      publish,
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

  test("a relay that hangs with events in hand holds up no other key, and keeps the order of its own", async () => {
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

  test("a NOTIFY of another process wakes a relay that would not look by itself", async () => {
    const woken = relay({ lookEveryMs: HOUR });
    await db.listen(wakeChannel("posts"), woken.wake);
    await write("a", "1");
    await createNotifyRelays(db, "posts")();
    await eventually(async () => (await log()).length === 1, "the event is published");
  });

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

  test("while NATS is away events wait, and go out in their order once it is back", async () => {
    const publishing = relay();
    await write("a", "1");
    await eventually(async () => (await waiting()) === 0, "the first event is published");
    await nats.stop();
    for (const body of ["2", "3", "4"]) await write("a", body);
    publishing.wake();
    await eventually(() => !publishing.healthy(), "the relay says that it cannot publish", 30_000);
    expect(await waiting()).toBe(3);
    nats = await startNats({ dir: folder, port: nats.port });
    await eventually(async () => (await waiting()) === 0, "the others are published", 30_000);
    expect((await log()).map(({ body }) => body)).toEqual(["1", "2", "3", "4"]);
  });

  test("an event that can never be published holds up no other", async () => {
    const publish = createPublishEvent(createPublish(connection.jetstream()));
    const refusing = async (event: OutboxEvent): Promise<void> => {
      if (event.key === "bad") throw new Error("never");
      await publish(event);
    };
    relay({ publish: refusing });
    await write("bad", "1");
    for (let n = 0; n < 20; n++) await write(`k${n}`, "1");
    await eventually(async () => (await waiting()) === 1, "all others are published");
    expect(await log()).toHaveLength(20);
  });

  test("what was published long ago is removed, what waits is not", async () => {
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
