import { afterAll, afterEach, beforeAll, expect, test } from "@jest/globals";
import { createChannels } from "../../src/bridge/channels.redis.js";
import { verdict } from "../../src/delivery/verdict.js";
import { silent } from "../../src/kernel/logger.js";
import { examine, redisChecks } from "../../src/operators/doctor/index.js";
import type { RedisClient } from "../../src/platform/redis/clusters.js";
import { connectRedis, connectSubscriber } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import { Refusal, refusalOf } from "../../src/platform/refusals.js";
import { createTokenBucket } from "../../src/state/limits/source-tokens.redis.js";
import { checkRights, createRightsWatch } from "../../src/state/servers/rights.redis.js";
import { eventually } from "../support/eventually.js";
import { openRedis, type RedisBench } from "../support/redis.js";

/** As docs/security.md has it. */
const RIGHTS = "~timeline:* ~sse_* ~analysis:* &timeline:x:deletions &__redis__:invalidate +@all -@dangerous +info";

let bench: RedisBench;
let client: RedisClient;
let scripts: Scripts;

const url = () => bench.broker.url.replace("redis://", "redis://ours:secret@");

const grant = (rights: string) => bench.raw.call("ACL", "SETUSER", "ours", ...rights.split(" "));

beforeAll(async () => {
  bench = await openRedis();
  await grant(`reset on >secret ${RIGHTS}`);
  client = connectRedis([url()], silent);
  scripts = createScripts(client, silent, createRightsWatch(client).lost);
  await eventually(() => client.status === "ready", "Redis is connected");
});
afterAll(async () => {
  client.disconnect();
  await bench.close();
});
afterEach(() => grant(`reset on >secret ${RIGHTS}`));

const failure = (work: Promise<unknown>): Promise<unknown> => work.catch((error: unknown) => error);

const written = async () => /rdb_changes_since_last_save:(\d+)/.exec(await bench.raw.info("persistence"))?.[1];

test("a user with the rights that the guide names lacks none, and the check writes nothing at any instant", async () => {
  await bench.raw.flushall();
  // The check names this member, which is not its own.
  await bench.raw.zadd("timeline:local", 1, "~rights");
  const before = await written();
  await checkRights(client);
  const checks = redisChecks([bench.broker.url], false);
  expect((await examine(checks)).filter(({ state }) => state === "fault")).toEqual([]);
  expect(await written()).toBe(before);
  expect(await createTokenBucket(scripts, 1_000).tryTake()).toBe(true);
  await createTokenBucket(scripts, 1_000).take("someone", new AbortController().signal);
});

test.each([
  ["-info -zadd", "+info +zadd"],
  ["-@scripting", "+eval +evalsha"],
  ["resetkeys ~timeline:*", "~sse_* ~analysis:*"],
  ["resetchannels", "&timeline:x:deletions"],
  ["-publish", "+publish"],
  ["-@write", "+set"],
])("the check names what a user with %s lacks", async (taken, named) => {
  await grant(taken);
  const error = await failure(checkRights(client));
  expect(error).toBeInstanceOf(Refusal);
  expect((error as Refusal).message).toContain(named);
  expect((error as Refusal).advice).toContain(named);
});

const scriptOf = (name: string, lua: string) => ({ name, lua, spanned: false, inBytes: false });
const ADD = scriptOf("test-add", "return redis.call('ZADD', KEYS[1], 1, 'a')");
const SET_ANOTHER = scriptOf("test-set-another", "return redis.call('SET', 'sse_connection:a', 'a')");

// Invariant 8.
test.each([
  ["a command", "-set", "+set", () => scripts.command("set", (to) => to.set("timeline:x:a", 1, "PX", 1_000))],
  ["a command in a script", "-zadd", "+zadd", () => scripts.run(ADD, ["timeline:x:b"], [])],
  ["a key", "resetkeys ~sse_*", "~timeline:*", () => scripts.run(ADD, ["timeline:x:b"], [])],
  ["a key in a script", "resetkeys ~timeline:*", "~sse_*", () => scripts.run(SET_ANOTHER, [], [])],
])(
  "work waits while the right to %s is taken away, and the client is refused until it is given back",
  async (...test) => {
    const [, taken, named, work] = test;
    await work();
    await grant(taken);
    const error = await failure(work());
    expect(error).toBeInstanceOf(Refusal);
    expect(verdict(error, { attempt: 9, waits: 0, deliveries: 1 }, { maxAttempts: 5, retryBaseMs: 1 }).kind).toBe(
      "wait",
    );
    expect(refusalOf(client)).toBeInstanceOf(Refusal);
    await eventually(() => refusalOf(client)?.message.includes(named) ?? false, "the right is named");
    await grant(RIGHTS);
    await eventually(() => refusalOf(client) === undefined, "nothing is refused any more");
    await work();
  },
);

// Invariant 8.
test("a bridge that may not subscribe does not start, and one that may not any more subscribes once it may again", async () => {
  const names = ["drop_created", "drop_deleted"] as const;
  const open = async (interrupted: () => void = () => undefined) => {
    const subscriber = connectSubscriber([url()], silent);
    const channels = createChannels(subscriber, silent);
    const close = () => channels.unsubscribe().then(() => subscriber.disconnect());
    await channels
      .subscribe(names, () => undefined, interrupted)
      .catch(async (error: unknown) => {
        await close();
        throw error;
      });
    return { ...channels, close };
  };
  await grant("resetchannels");
  expect(await failure(open())).toBeInstanceOf(Refusal);
  await grant("&*");
  let interruptions = 0;
  const channels = await open(() => {
    interruptions += 1;
  });
  // The server ends connections that listen where they may not.
  await grant("resetchannels");
  await eventually(() => !channels.healthy(), "it is not subscribed any more");
  await grant("&*");
  await eventually(() => channels.healthy(), "it is subscribed again");
  expect(interruptions).toBe(1);
  await channels.close();
});
