import { credentials, type ServiceError, status } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { PostServiceClient, PostServiceService, Visibility } from "../../src/gen/avion/posts.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { createPageTokens } from "../../src/kernel/paging.js";
import { OUTBOX_MIGRATIONS, startOutbox } from "../../src/outbox/index.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { serveGrpc } from "../../src/platform/grpc/serve.js";
import { POSTS_MIGRATIONS, startPosts } from "../../src/posts/index.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/eventually.js";
import { callsOf } from "../support/grpc.js";
import { POSTS_CONFIG } from "../support/posts.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { redisStateOn } from "../support/state.js";

const LIMIT = 3;

describe.each(DATABASES)("drops while events wait, on $name", ({ start }) => {
  let server: DatabaseServer;
  let redis: RedisBench;
  let db: Db;

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
    db = await server.newDatabase();
    await migrate(db, [OUTBOX_MIGRATIONS, POSTS_MIGRATIONS], silent);
  });
  afterAll(() => Promise.all([server.stop(), redis.close()]));

  /** A posts service whose events are published while `open`. */
  async function serve(maxWaitingEvents: number) {
    const published: string[] = [];
    const log = { open: false };
    const publish = async ({ id }: { readonly id: string }) => {
      if (!log.open) throw new AppError("unavailable", "closed");
      published.push(id);
      return { stream: "DROPS", seq: published.length, duplicate: false };
    };
    const outbox = await startOutbox({
      ...{ source: "posts", db, publish, countEveryMs: 20, channels: undefined, version: "test", log: silent },
      storeDeadLetter: async () => expect("a dead letter").toBe("none"),
    });
    const posts = startPosts({
      ...{ db, users: undefined, tokens: createPageTokens("a secret of tests"), log: silent },
      state: redisStateOn(redis.scripts),
      wakeRelay: outbox.wake,
      waitingEvents: outbox.waiting,
      config: { ...POSTS_CONFIG, maxWaitingEvents },
    });
    const grpc = await serveGrpc("127.0.0.1:0", [posts.service], {});
    const client = new PostServiceClient(`127.0.0.1:${grpc.port}`, credentials.createInsecure());
    const { createDrop } = callsOf(client, PostServiceService);
    const create = async () => createDrop({ user_id: "ada", body: "text", visibility: Visibility.PUBLIC });
    const refusal = async (): Promise<ServiceError | undefined> =>
      create().then(
        () => undefined,
        (error: ServiceError) => error,
      );
    const close = async (): Promise<void> => {
      client.close();
      await grpc.close(0);
      await posts.close();
      await outbox.close();
    };
    return { create, refusal, published, log, close };
  }

  test("past the bound CreateDrop answers RESOURCE_EXHAUSTED with the time to wait, until events are published", async () => {
    const { create, refusal, published, log, close } = await serve(LIMIT);
    let created = 0;
    let refused: ServiceError | undefined;
    await eventually(async () => {
      refused = await refusal();
      if (refused === undefined) created += 1;
      return refused !== undefined;
    }, "a drop is refused");
    expect(created).toBeGreaterThan(LIMIT);
    expect(refused?.code).toBe(status.RESOURCE_EXHAUSTED);
    expect(refused?.metadata.get("grpc-retry-pushback-ms")).toEqual(["1000"]);
    const [row] = await db.query<{ drops: number }>("SELECT count(*) AS drops FROM posts.drops");
    expect(row?.drops).toBe(created);
    log.open = true;
    await eventually(async () => (await refusal()) === undefined, "drops are created again");
    await create();
    await eventually(() => published.length === created + 2, "every event is published");
    expect(new Set(published).size).toBe(created + 2);
    await close();
  });

  test("without a bound no drop is refused, however many events wait", async () => {
    const { create, refusal, log, close } = await serve(0);
    await Promise.all(Array.from({ length: 40 }, create));
    const { length } = await db.query("SELECT FROM public.outbox WHERE published_at IS NULL");
    expect(length).toBeGreaterThanOrEqual(40);
    for (let n = 0; n < 20; n++) expect(await refusal()).toBeUndefined();
    log.open = true;
    await close();
  });
});
