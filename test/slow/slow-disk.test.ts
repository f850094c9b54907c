import { afterEach, expect } from "@jest/globals";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { openApi } from "../support/api.js";
import { becomes, eventually } from "../support/eventually.js";
import { type Postgres, postgresPrograms, startPostgres } from "../support/postgres.js";
import { openReader } from "../support/reader.js";
import { httpStatus } from "../support/service.js";
import { slowDiskOf, tracedTest } from "../support/slow-disk.js";
import { spentAttempts } from "../support/spent-attempts.js";
import { openEvents } from "../support/sse.js";
import { type Stack, startStack } from "../support/stack.js";

/** Each write of JetStream, and each flush of the others, takes so much longer. */
const SLOW_MS = 100;
const POSTS = 24;
const AT_ONCE = 4;
const READERS = ["ada", "cyd", "dan"];
/** Attempts follow each other fast, so that any would show. */
const ENV = {
  ...{ TIMELINE_MAX_ATTEMPTS: "2", TIMELINE_RETRY_BASE_MS: "50" },
  ...{ TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" },
};
const ROLES = "users,posts,bridge,fanout,api,gateway";

const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

type Servers = Stack & { readonly postgres: Postgres };

/** A server with a disk, and a write that waits for it. */
type Slow = { pid(servers: Servers): number; write(servers: Servers): Promise<unknown> };

async function openServers(): Promise<Servers> {
  const postgres = await startPostgres({ fsync: true });
  closes.push(() => postgres.stop());
  const stack = await startStack({ roles: ROLES, env: { ...ENV, DATABASE_URL: postgres.url } });
  closes.push(() => stack.stop());
  // As PostgreSQL does, Redis answers once the write is on the disk.
  await stack.redis.config("SET", "appendfsync", "always");
  return { ...stack, postgres };
}

async function msOf(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

async function slowDown(slow: Slow): Promise<void> {
  const servers = await openServers();
  await postSlowly(servers, slow).catch((error: unknown) => {
    throw servers.explain(error);
  });
}

async function postSlowly(servers: Servers, { pid, write }: Slow): Promise<void> {
  const { service, streams } = servers;
  const [api, reads] = [openApi(service.grpcAddress), openReader(service.grpcAddress)];
  closes.push(api.close, reads.close);
  await mapLimited(READERS, 1, (follower_id) => api.follow({ follower_id, following_id: "bob" }));
  const heard = await openEvents(service.httpUrl, "ada");
  closes.push(heard.close);
  const posted: string[] = [];
  const numbers = Array.from({ length: POSTS }, (_, place) => place + 1);
  const post = async (number: number): Promise<void> => {
    const idempotency_key = `post-${number}`;
    // A statement may wait for longer than the service lets it.
    await eventually(async () => {
      const drop = await api.post("bob", { idempotency_key }).catch(String);
      if (typeof drop === "string") return drop;
      posted.push(drop.drop_id);
      return true;
    }, "the drop is taken");
  };
  await post(0);
  await streams.settledWith(1);
  const restore = await slowDiskOf(pid(servers), SLOW_MS);
  closes.push(restore);
  expect(await msOf(() => write(servers))).toBeGreaterThan(SLOW_MS);
  await mapLimited(numbers, AT_ONCE, post);
  const homes = () =>
    becomes(async () => {
      const wanted = [...posted].sort();
      for (const user of READERS) {
        const { drop_ids, degraded } = await reads.home(user, { limit: 40 });
        expect({ user, degraded, ids: [...drop_ids].sort() }).toEqual({ user, degraded: false, ids: wanted });
      }
      expect([...heard.drops()].sort()).toEqual(wanted);
    }, 90_000);
  await homes();
  expect(await httpStatus(`${service.httpUrl}/readyz`)).toBe(200);
  await restore();
  await post(POSTS + 1);
  await homes();
  expect(await streams.count("DLQ")).toBe(0);
  expect(await spentAttempts(service)).toEqual([]);
}

const SERVERS: Readonly<Record<string, Slow>> = {
  PostgreSQL: {
    pid: ({ postgres }) => postgres.pid(),
    write: ({ service }) => {
      const api = openApi(service.grpcAddress);
      return api.follow({ follower_id: "eve", following_id: "fay" }).finally(api.close);
    },
  },
  Redis: { pid: ({ redisServer }) => redisServer.pid, write: ({ redis }) => redis.set("some", "thing") },
  JetStream: {
    pid: ({ natsServer }) => natsServer.pid,
    write: async ({ streams }) => {
      await streams.manager.streams.add({ name: "OTHER", subjects: ["other"] });
      await streams.connection.jetstream().publish("other", "", { timeout: 30_000 });
    },
  },
};

// Invariants 1 and 8.
if (postgresPrograms() !== undefined)
  for (const [name, slow] of Object.entries(SERVERS))
    tracedTest(
      `the disk of ${name} is slow: all that was answered is in the homes and on the stream`,
      () => slowDown(slow),
      180_000,
    );
