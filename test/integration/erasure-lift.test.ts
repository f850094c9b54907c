import { afterEach, beforeAll, beforeEach, expect, jest, test } from "@jest/globals";
import { Command } from "commander";
import { define } from "../../src/cli/erase.js";
import { parseStored } from "../../src/contracts/events.js";
import { createErasureStatus, lastMarked, liftErasure, removeMarkers } from "../../src/erasure/index.js";
import { composeFanout } from "../../src/fanout/fanout.js";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import type { Loop } from "../../src/kernel/loop.js";
import { MINUTE } from "../../src/kernel/time.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { createForget } from "../../src/posts/erasure.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { createErasedList, createLift } from "../../src/state/erased/erased.redis.js";
import { createForgetHandler } from "../../src/state/erased/erasures.js";
import { GLOBAL_KEY, homeKey } from "../../src/state/keys.js";
import { contextWith, deliveryOf } from "../support/deliveries.js";
import { describePosts } from "../support/describe-posts.js";
import { erasedOn } from "../support/erased.js";
import { erasing } from "../support/erasures.js";
import { becomes } from "../support/eventually.js";
import { type FanoutBench, handle, openFanout } from "../support/fanout.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { type PostsHarness, refusal, startPosts } from "../support/posts.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { received } from "../support/timeline-events.js";
import { usersProcess } from "../support/users.js";
import { World } from "../support/world.js";

const redis = redisOfFile();
const nats = natsOfFile();

beforeAll(() => applyTopology(nats.manager, { replicas: 1, notifyParts: 1 }, silent));

const MAL = "https://far.example/users/mal";
const REASON = "the server was restored";
const later = () => Date.now() + 12 * MINUTE;
const bucket = () => createBucket(nats.connection, nats.publish, "ERASED");

describePosts("lifted erasures", { emptied: true }, (posts) => {
  let service: PostsHarness;
  let bench: FanoutBench;
  let world: World;
  let loop: Loop;

  const erased = () => erasedOn(redis.scripts, nats);

  beforeEach(async () => {
    await nats.manager.streams.purge("KV_ERASED");
    const { db } = posts;
    await migrate(db, MIGRATIONS, silent);
    const users = usersProcess({ db, scripts: redis.scripts });
    const eraseUser = async (user_id: string, only_if_known: boolean) => {
      await users.eraseUser({ user_id, only_if_known });
      return true;
    };
    service = await startPosts(db, { eraseUser });
    loop = erasing({ db, scripts: redis.scripts, erased: erased() });
    world = new World();
    world.follow("ann", MAL);
    bench = openFanout(redis, world, { erased: erased() });
    for (const part of ["posts", "timelines"] as const) await erased().announce(part);
  });
  afterEach(async () => {
    await loop.close();
    await service.stop();
  });

  const putActor = () => service.call.putRemoteObject({ uri: MAL, kind: RemoteKind.ACTOR, document: "{}" });
  const putDrop = (n: number) =>
    service.call.putRemoteObject({
      ...{ uri: `https://far.example/notes/${n}`, kind: RemoteKind.DROP, actor_uri: MAL, document: "{}" },
      visibility: Visibility.PUBLIC,
    });
  /** Has the event of a drop applied, as a bridge and fan-out do. */
  const arrives = async (n: number): Promise<readonly string[]> => {
    const drop = {
      drop_id: `https://far.example/notes/${n}`,
      user_id: MAL,
      created_at: Date.now(),
      visibility: "public",
    };
    world.post(drop as never);
    await handle(bench, received(drop as never));
    const [home, global] = await Promise.all(
      [homeKey("ann"), GLOBAL_KEY].map((key) => redis.raw.zscore(key, drop.drop_id)),
    );
    return [...(home ? ["home"] : []), ...(global ? ["global"] : [])];
  };

  /** Resolves to the event, once the relays have published what was written. */
  const deleted = async () => {
    await service.call.deleteRemoteObject({ uri: MAL, kind: RemoteKind.ACTOR });
    const [event] = await posts.db.query<{ subject: string; body: string }>(
      "SELECT subject, body FROM public.outbox WHERE subject = 'graph.erased' AND published_at IS NULL",
    );
    await posts.db.query("UPDATE public.outbox SET published_at = 1 WHERE published_at IS NULL");
    return event && deliveryOf({ subject: event.subject, body: Buffer.from(event.body), time: Date.now() });
  };
  const apply = async (event: ReturnType<typeof deliveryOf>) => {
    await bench.handlers.graph.single(event, contextWith());
    const forget = createForget({ store: service.store, now: Date.now, wakeRelay: () => undefined });
    const publishing = setInterval(
      () => void posts.db.query("UPDATE public.outbox SET published_at = 1 WHERE published_at IS NULL"),
      50,
    );
    await createForgetHandler(
      erased(),
      "posts",
      forget,
      1,
    )(event, contextWith()).finally(() => clearInterval(publishing));
    await createForgetHandler(erased(), "timelines", async () => undefined, 1)(event, contextWith());
  };
  const completed = () =>
    becomes(async () =>
      expect(
        await posts.db.query("SELECT FROM users.erasures WHERE user_id = $1 AND completed_at IS NOT NULL", [MAL]),
      ).toHaveLength(1),
    );
  const erase = async () => {
    const event = (await deleted()) as ReturnType<typeof deliveryOf>;
    await apply(event);
    await completed();
    return event;
  };
  const lift = (uri = MAL, now = later) =>
    liftErasure(
      {
        list: createErasedList(bucket()),
        record: createLift(redis.scripts, bucket()),
        tables: {
          lastMarked: (actor) => lastMarked(posts.db, actor),
          removeMarkers: (actor) => removeMarkers(posts.db, actor),
        },
        now,
      },
      uri,
      REASON,
    );
  const status = () => createErasureStatus(createErasedList(bucket()), undefined);
  const isErased = async (): Promise<boolean> => (await erased().among([MAL])).has(MAL);

  // Invariant 4.
  test("a lifted actor is taken again, an erasure from before changes nothing, and a new one counts", async () => {
    await putActor();
    await putDrop(1);
    const old = await erase();
    expect(await refusal(putActor())).toMatch(/^FAILED_PRECONDITION/);
    expect(await refusal(putDrop(2))).toMatch(/^FAILED_PRECONDITION/);
    expect(await arrives(2)).toEqual([]);

    expect(await lift("https://FAR.example:443/users/mal")).toBe(MAL);
    await putActor();
    await putDrop(2);
    expect(await arrives(2)).toEqual(["home", "global"]);
    expect(await status().list(10)).toEqual([
      expect.objectContaining({ user_id: MAL, status: "lifted", reason: REASON, lifted_at: expect.any(String) }),
    ]);

    await apply(old);
    await composeFanout(bench.deps).apply(parseStored(old.subject, old.body, old.time), old);
    expect([await isErased(), await redis.raw.zscore("timeline:x:erased", encodeId(MAL))]).toEqual([false, null]);
    expect(await arrives(3)).toEqual(["home", "global"]);
    await putDrop(3);

    const again = (await deleted()) as ReturnType<typeof deliveryOf>;
    expect((await erased().reports(MAL)).get("posts")).toEqual({ done: false, left: 0 });
    await apply(again);
    await completed();
    expect(await refusal(putActor())).toMatch(/^FAILED_PRECONDITION/);
    expect(await refusal(putDrop(4))).toMatch(/^FAILED_PRECONDITION/);
    expect(await arrives(4)).toEqual([]);
    expect((await status().list(10)).map((one) => one.status)).toEqual(["completed"]);
  });

  test("a stranger who was only refused is taken again", async () => {
    expect(await deleted()).toBeUndefined();
    await posts.db.query("UPDATE users.erasures SET completed_at = 1");
    expect(await refusal(putActor())).toMatch(/^FAILED_PRECONDITION/);
    await lift();
    await putActor();
    await putDrop(1);
    expect(await isErased()).toBe(false);
  });

  test("a user of this server, a stranger to the record, and an erasure that runs or is new are refused", async () => {
    await expect(lift("ada")).rejects.toMatchObject({ code: "invalid" });
    await expect(lift()).rejects.toMatchObject({ code: "notfound" });
    await putDrop(1);
    const event = (await deleted()) as ReturnType<typeof deliveryOf>;
    await expect(lift()).rejects.toMatchObject({ code: "conflict", message: expect.stringContaining("running") });
    await apply(event);
    await completed();
    await expect(lift(MAL, Date.now)).rejects.toMatchObject({ message: expect.stringContaining("11 minutes") });
    expect(await isErased()).toBe(true);
    await lift();
    await lift();
    expect(await isErased()).toBe(false);
  });
});

test("the command takes remote actors only, needs a reason, and says that it changed no table", async () => {
  const env = { ...process.env };
  const folder = { TIMELINE_DATA_DIR: "/nowhere", DATABASE_URL: "" };
  Object.assign(process.env, { REDIS_URL: redis.broker.url, NATS_URL: nats.broker.url, ...folder });
  const printed: string[] = [];
  const log = jest.spyOn(console, "log").mockImplementation((text: string) => void printed.push(...text.split("\n")));
  const errors = jest.spyOn(process.stderr, "write").mockImplementation(() => true);
  const run = async (...args: string[]) => {
    const erase = new Command("erase").exitOverride();
    define(erase);
    for (const command of erase.commands) command.exitOverride();
    await erase.parseAsync(args, { from: "user" });
    process.exitCode = undefined;
    return printed.splice(0);
  };
  try {
    await nats.manager.streams.purge("KV_ERASED");
    const because = ["--yes", "--reason", REASON] as const;
    await expect(run("lift", "ada", ...because)).rejects.toMatchObject({ code: "invalid" });
    await expect(run("lift", MAL, "--force")).rejects.toThrow("--reason");
    await expect(run("lift", MAL, "--force", "--reason", " ")).rejects.toThrow("1 to 500 characters");
    await expect(run("lift", MAL, ...because)).rejects.toMatchObject({ code: "notfound" });
    await createLift(redis.scripts, bucket()).lift(MAL, "an attempt that was interrupted");
    // A Redis that was restored has the actor still.
    await redis.raw.zadd("timeline:x:erased", 0, encodeId(MAL), 0, "~floor");
    expect(await run("lift", MAL, ...because)).toEqual([
      `the erasure of ${MAL} is lifted: ${REASON}`,
      "DATABASE_URL is not set: a table may refuse the actor still",
    ]);
    expect(await redis.raw.zrange("timeline:x:erased", "0", "-1")).toEqual(["~floor"]);
    expect(await run("show", MAL)).toEqual([
      expect.stringMatching(/^lifted at \S+Z {2}\S+mal {2}the server was restored$/),
    ]);
  } finally {
    log.mockRestore();
    errors.mockRestore();
    process.env = env;
  }
});
