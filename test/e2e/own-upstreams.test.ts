import { rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "@jest/globals";
import { type Api, openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes, eventually } from "../support/eventually.js";
import { type Postgres, postgresPrograms, startPostgres } from "../support/postgres.js";
import { openReader } from "../support/reader.js";
import { launchService, type Service } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { type Stack, startStack } from "../support/stack.js";
import { quickTest, slowTest } from "../support/suite.js";

type Kind = "PGlite" | "PostgreSQL";
const KINDS: readonly Kind[] = postgresPrograms() === undefined ? ["PGlite"] : ["PGlite", "PostgreSQL"];
const ALL_ROLES = "users,posts,bridge,fanout,api,gateway";

type Setting = {
  readonly stack: Stack;
  /** Starts a service on this database; it keeps what it has after the service has ended. */
  start(roles: string, env?: Readonly<Record<string, string>>): Promise<Service>;
  api(service: Service): Api;
};

/** Brokers and a database, and whatever the test starts on them. */
async function withDatabase(kind: Kind, work: (setting: Setting) => Promise<void>): Promise<void> {
  const stack = await startStack({ service: false });
  try {
    const folder = await temporaryFolder("data");
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const database = await databaseOf(kind, folder);
    if (database.server) stack.defer(() => database.server?.stop());
    await work({
      stack,
      start: async (roles, env = {}) => {
        const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
        return stack.start({ roles, env: { ...own, ...database.env, ...env } });
      },
      api: (service) => {
        const api = openApi(service.grpcAddress);
        stack.defer(() => api.close());
        return api;
      },
    });
  } catch (error) {
    throw stack.explain(error);
  } finally {
    await stack.stop();
  }
}

async function databaseOf(
  kind: Kind,
  folder: string,
): Promise<{ env: Readonly<Record<string, string>>; server?: Postgres }> {
  if (kind === "PGlite") return { env: { TIMELINE_DATA_DIR: join(folder, "data") } };
  const server = await startPostgres();
  return { server, env: { DATABASE_URL: server.url } };
}

/** The drop ids of what the log holds of a subject, in its order. */
async function logged(stack: Stack, subject: string): Promise<string[]> {
  const log = await stack.streams.all("DROPS");
  return log.filter((message) => message.subject === subject).map(({ body }) => JSON.parse(body.toString()).drop_id);
}

const held = (stack: Stack, key: string, drop: string) => async (): Promise<boolean> =>
  (await stack.redis.zscore(key, drop)) != null;

const gone = (stack: Stack, key: string, drop: string) => async (): Promise<boolean> =>
  (await stack.redis.zscore(key, drop)) == null;

describe.each(KINDS)("the service on its own users and posts, on %s", (kind) => {
  quickTest(
    "what people do shows in the timelines, and is announced on the channels without doing anything twice",
    async () => {
      await withDatabase(kind, async ({ stack, start, api: open }) => {
        const heard: string[] = [];
        const listener = stack.redis.duplicate();
        stack.defer(() => listener.disconnect());
        await listener.subscribe("drop_created");
        listener.on("message", (_channel, payload) => heard.push(JSON.parse(payload).drop_id));
        const service = await start(ALL_ROLES, { TIMELINE_RELAY_CHANNELS: "true" });
        const api = open(service);
        const reads = openReader(service.grpcAddress);
        stack.defer(() => reads.close());

        expect(await api.follow({ follower_id: "ada", following_id: "bob" })).toMatchObject({ changed: true });
        expect(await api.follow({ follower_id: "ada", following_id: "bob" })).toMatchObject({ changed: false });
        const followers = () => api.followers({ user_id: "bob", page_size: 0, page_token: "" });
        await becomes(async () => expect(await followers()).toMatchObject({ user_ids: ["ada"], total_count: 1 }));

        const drop = await api.post("bob");
        const kept = await api.post("bob");
        await eventually(held(stack, "timeline:home:ada", kept.drop_id), "the drop in the follower's home");
        await eventually(held(stack, "timeline:local", kept.drop_id), "the drop in the local timeline");
        expect((await reads.home("ada")).drop_ids).toEqual([kept.drop_id, drop.drop_id]);
        await expect(reads.home("a\0b")).rejects.toThrow(/INVALID_ARGUMENT: user_id: .*must not contain NUL/);
        await eventually(() => heard.length === 2, "both drops are announced");

        const stream = await openEvents(service.httpUrl, "ada");
        await api.edit({
          drop_id: kept.drop_id,
          user_id: "bob",
          summary: "",
          body: "Better",
          expected_revision: 1,
        });
        expect((await api.getDrop({ drop_id: kept.drop_id, revision: 1, viewer_id: "" })).drop?.body).toBe("Hello");
        expect((await api.getDrop({ drop_id: kept.drop_id, revision: 0, viewer_id: "" })).drop?.body).toBe("Better");
        expect((await stream.waitFor("drop_edited")).data).toEqual({ drop_id: kept.drop_id, revision: 2 });
        stream.close();

        await api.like({ drop_id: kept.drop_id, user_id: "ada" });
        const counts = () => api.counts({ drop_ids: [kept.drop_id] });
        await becomes(async () => expect((await counts()).counts).toMatchObject([{ likes: 1 }]));

        await api.deleteDrop({ drop_id: drop.drop_id, user_id: "bob" });
        await eventually(gone(stack, "timeline:home:ada", drop.drop_id), "the deleted drop gone from the home");
        expect((await api.getDrop({ drop_id: drop.drop_id, revision: 0, viewer_id: "" })).tombstone?.former_type).toBe(
          "drop",
        );

        const [far, note] = ["https://far.example/u/eve", "https://far.example/notes/1"];
        await api.follow({ follower_id: "ada", following_id: far });
        await becomes(async () => {
          const { user_ids } = await api.followers({ user_id: far, page_size: 0, page_token: "" });
          expect(user_ids).toEqual(["ada"]);
        });
        await api.putRemote({ uri: note, actor_uri: far });
        await eventually(held(stack, "timeline:global", note), "the remote drop in the global timeline");
        await eventually(held(stack, "timeline:home:ada", note), "the remote drop in the follower's home");
        expect(await held(stack, "timeline:local", note)()).toBe(false);

        await api.unfollow({ follower_id: "ada", following_id: "bob" });
        await eventually(gone(stack, "timeline:home:ada", kept.drop_id), "the unfollowed author's drop gone");
        expect((await reads.home("ada")).drop_ids).toEqual([note]);
        // Two follows, an unfollow, two drops, an edit, a deletion, a remote drop: each once, although it came on two ways.
        expect(await stack.streams.count("DROPS")).toBe(8);
        expect(await stack.streams.count("DLQ")).toBe(0);
        expect((await service.stop()).code).toBe(0);
      });
    },
    120_000,
  );

  for (const point of ["outbox-claimed", "outbox-published", "outbox-marked"]) {
    // Invariant 1.
    slowTest(
      `a relay killed at ${point}: the event is in the log, once`,
      async () => {
        await withDatabase(kind, async ({ stack, start, api: open }) => {
          const doomed = await start("users,posts", { AVION_TEST_FAILPOINTS: `${point}=kill` });
          const api = open(doomed);
          // The process may die before it has answered.
          await Promise.all([api.post("bob", { idempotency_key: "first" }).catch(() => undefined), doomed.exited]);
          const again = open(await start("users,posts"));
          await eventually(async () => (await logged(stack, "drops.created")).length === 1, "the drop is in the log");
          const drop = await again.post("bob", { idempotency_key: "first" });
          const second = await again.post("bob");
          await eventually(async () => (await logged(stack, "drops.created")).length > 1, "the next one is, too");
          expect(await logged(stack, "drops.created")).toEqual([drop.drop_id, second.drop_id]);
        });
      },
      60_000,
    );
  }

  // Invariant 1.
  slowTest(
    "killed with -9 in the midst of a burst: what was answered is there, and every drop is in the log once",
    async () => {
      await withDatabase(kind, async ({ stack, start, api: open }) => {
        // More than one statement takes.
        const keys = Array.from({ length: 400 }, (_, n) => n);
        const made = new Map<number, string>();
        let service = await start("users,posts");
        for (let life = 0; made.size < keys.length; life += 1) {
          const api = open(service);
          const left = keys.filter((key) => !made.has(key));
          const writing = left.map((key) =>
            api.post(`user${key % 5}`, { idempotency_key: `key-${key}`, body: "Hello" }).then(
              ({ drop_id }) => {
                made.set(key, drop_id);
                // Two lives end early, each with some of its writes answered and others under way.
                if (life < 2 && made.size >= (life + 1) * 30) service.signal("SIGKILL");
              },
              () => undefined,
            ),
          );
          await Promise.all(writing);
          if (life < 2) {
            await service.exited;
            expect(made.size).toBeLessThan(keys.length);
            service = await start("users,posts");
          }
        }
        expect(new Set(made.values()).size).toBe(keys.length);
        await eventually(
          async () => new Set(await logged(stack, "drops.created")).size >= keys.length,
          "every drop is in the log",
        );
        const log = await logged(stack, "drops.created");
        expect([...log].sort()).toEqual([...made.values()].sort());
      });
    },
    120_000,
  );
});

quickTest(
  "a second process on the folder of an embedded database says who has it, and ends with 1",
  async () => {
    await withDatabase("PGlite", async ({ stack, start }) => {
      const folder = await temporaryFolder("data");
      stack.defer(() => rm(folder, { recursive: true, force: true }));
      const env = { TIMELINE_DATA_DIR: folder, TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
      const first = await start("users,posts", env);
      const second = await launchService({ ...stack.serviceOptions, roles: "posts", env });
      expect((await second.exited).code).toBe(1);
      expect(second.errors()).toContain(`is open in process ${first.pid}`);
      await first.crash();
      const third = await start("posts", env);
      expect((await third.stop()).code).toBe(0);
    });
  },
  60_000,
);

const onServer = KINDS.includes("PostgreSQL") ? slowTest : test.skip;

onServer(
  "two processes on one PostgreSQL, one of them killed and the server restarted: each event once, in its order",
  async () => {
    const server = await startPostgres();
    const stack = await startStack({ service: false });
    try {
      const env = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "", DATABASE_URL: server.url };
      const services = [
        await stack.start({ roles: "users,posts", env }),
        await stack.start({ roles: "users,posts", env }),
      ];
      const apis = services.map(({ grpcAddress }) => openApi(grpcAddress));
      for (const api of apis) stack.defer(() => api.close());
      const ids: string[] = [];
      const comeAndGo = async (n: number): Promise<void> => {
        const api = apis[n % 2] as Api;
        const { drop_id } = await api.post("bob", { body: `${n}` });
        ids.push(drop_id);
        await (apis[(n + 1) % 2] as Api).deleteDrop({ drop_id, user_id: "bob" });
      };
      await Promise.all(Array.from({ length: 60 }, (_, n) => comeAndGo(n)));
      (services[0] as Service).signal("SIGKILL");
      await server.kill();
      await server.start();
      const [, other] = apis;
      await becomes(async () => {
        const { drop_id } = await (other as Api).post("bob", { idempotency_key: "after" });
        ids.push(drop_id);
      });
      await eventually(async () => (await stack.streams.count("DROPS")) >= 121, "everything is in the log", 40_000);
      expect((await logged(stack, "drops.created")).sort()).toEqual([...ids].sort());
      const log = (await stack.streams.all("DROPS")).map(({ subject, body }) => ({
        subject,
        drop: JSON.parse(body.toString()).drop_id as string,
      }));
      for (const id of ids.slice(0, 60)) {
        expect(log.filter(({ drop }) => drop === id).map(({ subject }) => subject)).toEqual([
          "drops.created",
          "drops.deleted",
        ]);
      }
    } catch (error) {
      throw stack.explain(error);
    } finally {
      await stack.stop();
      await server.stop();
    }
  },
  120_000,
);
