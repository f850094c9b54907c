import { expect } from "@jest/globals";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import { BusyWorld } from "../support/busy-world.js";
import { startCommand } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { startPostgres } from "../support/postgres.js";
import { below, oneOf, seeded } from "../support/random.js";
import { openReader, type Reader } from "../support/reader.js";
import { freePorts } from "../support/service.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { Supervisor } from "../support/supervisor.js";

/** No key, subject or LIKE pattern can hold this id as it is. */
const ERASED = "erin_%/ü";
const PEOPLE = [ERASED, ...Array.from({ length: 1_999 }, (_, number) => `person-${number}`)];
const OTHERS = PEOPLE.slice(1);
const PAGE = 40;
const AT_ONCE = 16;
const SEED = Number(process.env["ERASURE_SEED"] ?? 1);
const ENV = { TIMELINE_ACK_WAIT_MS: "3500", TIMELINE_RETRY_BASE_MS: "50" };

const all = <T>(items: readonly T[], work: (item: T) => Promise<unknown>) => mapLimited(items, AT_ONCE, work);

interface Scene {
  readonly stack: Stack;
  readonly world: BusyWorld;
  readonly reads: Reader;
  readonly supervisor: Supervisor;
  readonly env: Readonly<Record<string, string>>;
  killPostgres(): Promise<void>;
}

/** Each role group is a process that is started again when it dies, at the same address. */
async function openScene(stack: Stack): Promise<Scene> {
  const random = seeded(SEED);
  const postgres = await startPostgres();
  stack.afterServices(() => postgres.stop());
  const [upstreams, api] = await freePorts();
  const address = `127.0.0.1:${upstreams}`;
  const env = {
    ...ENV,
    DATABASE_URL: postgres.url,
    TIMELINE_USER_SERVICE_ADDR: address,
    TIMELINE_POST_SERVICE_ADDR: address,
  };
  const supervisor = new Supervisor(stack);
  stack.defer(() => supervisor.stopAll());
  await supervisor.start({ roles: "users,posts", env: { ...env, TIMELINE_GRPC_ADDR: address } });
  await supervisor.start({ roles: "api,gateway", env: { ...env, TIMELINE_GRPC_ADDR: `127.0.0.1:${api}` } });
  for (const roles of ["fanout", "fanout", "analysis,rewards"]) await supervisor.start({ roles, env });
  const world = new BusyWorld(address, PEOPLE, random);
  const reads = openReader(`127.0.0.1:${api}`);
  stack.defer(() => world.close());
  stack.defer(() => reads.close());
  const killPostgres = async (): Promise<void> => {
    await postgres.kill();
    const until = world.unanswered + 50;
    await eventually(() => world.unanswered >= until, "people meet the outage");
    await postgres.start();
  };
  return { stack, world, reads, supervisor, env, killPostgres };
}

async function fill({ world, reads }: Scene): Promise<void> {
  await world.followAtRandom(8);
  await all(OTHERS.slice(0, 600), (user) => world.follow(user, ERASED));
  await all(OTHERS.slice(500, 700), (user) => world.follow(ERASED, user));
  await all(Array.from({ length: 300 }), () => world.post(ERASED));
  expect(world.dropsOf(ERASED)).toHaveLength(300);
  await all(OTHERS.slice(0, 1_000), (user) => world.post(user));
  await all(OTHERS.slice(0, 600), (user) => world.act(user, ERASED));
  await all(OTHERS.slice(0, 200), (user) => world.act(ERASED, user));
  await all(OTHERS.slice(0, 1_000), (user) => world.act(user));
  await all(OTHERS.slice(1_900), (target_id) =>
    world.call(() => world.users.mute({ user_id: target_id, target_id: ERASED })),
  );
  await all(PEOPLE, (user) => reads.home(user, { limit: PAGE }, 60_000));
}

/** People do things, a third of them about the erased one, until they are stopped. */
function keepBusy({ world }: Scene): () => Promise<void> {
  const random = seeded(SEED + 1);
  let isOver = false;
  const busy = Array.from({ length: 6 }, async () => {
    while (!isOver) {
      const about = below(random, 3) === 0 ? ERASED : oneOf(random, OTHERS);
      await world.act(oneOf(random, below(random, 10) === 0 ? [ERASED] : OTHERS), about);
    }
  });
  return async () => {
    isOver = true;
    await Promise.all(busy);
  };
}

const KILLS = 8;

/** People have done so many more things. */
async function goesOn(world: BusyWorld, things: number): Promise<void> {
  const until = world.answered + things;
  await eventually(() => world.answered >= until, "people go on", 120_000);
}

/** Kills processes at random, then each of the servers once. */
async function harm({ stack, world, supervisor, killPostgres }: Scene): Promise<void> {
  const random = seeded(SEED + 2);
  const processes = supervisor.running.length;
  for (let kill = 0; kill < KILLS; kill += 1) {
    await goesOn(world, 20 + below(random, 60));
    if (supervisor.running.length > 0) await oneOf(random, supervisor.running).crash();
  }
  // A process that starts waits for Redis and NATS.
  await eventually(() => supervisor.running.length === processes, "all processes run", 120_000);
  for (const { broker, start } of [
    { broker: stack.redisServer, start: () => startRedis({ ...placeOf(stack.redisServer), appendonly: true }) },
    { broker: stack.natsServer, start: () => startNats(placeOf(stack.natsServer)) },
  ]) {
    broker.kill("SIGKILL");
    await broker.exited;
    await goesOn(world, 20);
    const again = await start();
    stack.afterServices(() => again.stop());
  }
  await killPostgres();
}

const placeOf = ({ dir, port }: Stack["redisServer"]) => ({ dir, port });

async function isCompleted({ world }: Scene): Promise<boolean | string> {
  const answer = await world.call(() => world.users.getErasure({ user_id: ERASED }));
  return answer?.erasure?.status === "completed" || JSON.stringify(answer?.erasure?.steps);
}

async function expectOracle({ world, reads }: Scene): Promise<void> {
  const { users, posts } = world;
  await becomes(async () => {
    const { drop_ids, degraded } = await reads.local({ limit: PAGE }, 60_000);
    expect({ drop_ids, degraded }).toEqual({ drop_ids: world.local(PAGE), degraded: false });
  }, 60_000);
  await all(OTHERS, (user) =>
    becomes(async () => {
      const { drop_ids, degraded } = await reads.home(user, { limit: PAGE }, 60_000);
      expect({ user, drop_ids, degraded }).toEqual({ user, drop_ids: world.page(user, PAGE), degraded: false });
    }, 60_000),
  );
  await all(OTHERS, (user_id) =>
    becomes(async () => {
      const { user_ids } = await users.getFollowersList({ user_id, page_size: 5_000 });
      const { following, followers } = await users.getFollowCounts({ user_id });
      const expected = world.followersOf(user_id).sort();
      expect({ user_id, user_ids: [...user_ids].sort() }).toEqual({ user_id, user_ids: expected });
      const followed = world.follows.get(user_id)?.size ?? 0;
      expect({ user_id, following, followers }).toEqual({ user_id, following: followed, followers: expected.length });
    }, 60_000),
  );
  const ids = [...world.drops.keys()];
  for (let at = 0; at < ids.length; at += 100) {
    const drop_ids = ids.slice(at, at + 100);
    await becomes(async () => {
      const { counts } = await posts.getCounts({ drop_ids });
      expect(counts).toEqual(drop_ids.map((drop) => world.countsOf(drop)));
    }, 60_000);
  }
}

async function expectRefusals({ world: { users, posts, drops } }: Scene): Promise<void> {
  const [drop_id = ""] = drops.keys();
  const [user_id, target_id] = [OTHERS[0] as string, ERASED];
  const writes = [
    () => users.follow({ follower_id: user_id, following_id: ERASED }),
    () => users.follow({ follower_id: ERASED, following_id: user_id }),
    () => users.block({ user_id, target_id }),
    () => users.mute({ user_id: ERASED, target_id: user_id }),
    () => users.setProfile({ user_id: ERASED, display_name: "Erin" }),
    () => posts.createDrop({ user_id: ERASED, visibility: 1, body: "Hello" }),
    () => posts.likeDrop({ drop_id, user_id: ERASED }),
    () => posts.shareDrop({ drop_id, user_id: ERASED }),
  ];
  for (const write of writes) await expect(write()).rejects.toThrow(/FAILED_PRECONDITION/);
  await expect(users.getProfile({ user_id: ERASED })).rejects.toThrow(/NOT_FOUND/);
}

// Invariants 2 and 5.
testWithStack(
  `one of 2,000 people is erased while the others are busy and everything is killed (seed ${SEED})`,
  { service: false, slow: true, timeoutMs: 900_000 },
  async (stack) => {
    const scene = await openScene(stack);
    const { world } = scene;
    await fill(scene);
    const calm = keepBusy(scene);
    const requested = await world.call(() => world.users.eraseUser({ user_id: ERASED }));
    expect(requested?.erasure).toMatchObject({ user_id: ERASED, status: "running", completed_at: 0 });
    await harm(scene);
    await eventually(() => isCompleted(scene), "the erasure is completed", 180_000);
    await calm();
    world.forget(ERASED);
    await expectOracle(scene);
    await expectRefusals(scene);
    const verified = startCommand(stack, ["erase", "verify", ERASED], scene.env);
    const { code } = await verified.exited;
    expect({ code, output: code === 0 ? "" : verified.output(), errors: verified.errors() }).toMatchObject({
      code: 0,
      output: "",
    });
  },
);
