import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { becomes, eventually } from "../support/facts.js";
import { runMain, type ServiceProcess } from "../support/service.js";
import { type Stack, type StackOptions, testWithStack } from "../support/stack.js";
import { created, type TimelineEvent } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
const OPTIONS: StackOptions = {
  env: { TIMELINE_FANOUT_MAX_ATTEMPTS: "3", TIMELINE_RETRY_BASE_MS: "50" },
  timeoutMs: 90_000,
};
const FIELDS =
  "seq reason event error error_code stream stream_seq consumer deliveries first_seen failed_at redrive_count";

/** Drops of five authors, each with two followers. */
function load({ world }: Stack, count: number): TimelineEvent[] {
  const authors = ["alice", "anna", "arno", "axel", "abel"];
  for (const author of authors) for (const reader of ["bob", "carol"]) world.follow(reader, author);
  const drops = Array.from({ length: count }, (_, number) => {
    const user_id = authors[number % authors.length] ?? "alice";
    return { drop_id: `load-${number}`, user_id, visibility: "public" as const, created_at: START + number };
  });
  world.post(...drops);
  return drops.map(created);
}

function ofAnna(event: TimelineEvent): boolean {
  return "user_id" in event.payload && event.payload.user_id === "anna";
}

/** Lets anna's drops fail until they are given up; yields how many letters that made. */
async function giveUpOnAnna(stack: Stack): Promise<number> {
  const history = load(stack, 40);
  const heal = stack.upstreams.inject({ method: "GetFollowersList", user: "anna", code: status.INTERNAL });
  await stack.publish(...history);
  await stack.streams.settled(history.length, 40_000);
  heal();
  return history.filter(ofAnna).length;
}

async function shown(stack: Stack): Promise<string[]> {
  return stack.redis.zrevrange("timeline:home:bob", 0, -1);
}

/** Runs a command of the program against the stack's brokers. */
function command({ serviceOptions }: Stack, ...args: readonly string[]): ServiceProcess {
  const { redisUrl, natsUrl, usersAddress, postsAddress } = serviceOptions;
  return runMain(args, {
    ...{ REDIS_URL: redisUrl, NATS_URL: natsUrl },
    ...{ TIMELINE_USER_SERVICE_ADDR: usersAddress, TIMELINE_POST_SERVICE_ADDR: postsAddress },
  });
}

async function json(stack: Stack, ...args: readonly string[]): Promise<unknown> {
  const run = command(stack, ...args, "--json");
  expect({ ...(await run.exited), args, errors: run.errors() }).toMatchObject({ code: 0 });
  return JSON.parse(run.output());
}

testWithStack("a failure of one author alone is given up, and holds up nobody else", OPTIONS, async (stack) => {
  const { streams, world } = stack;
  const count = await giveUpOnAnna(stack);
  const letters = await streams.all("DLQ");
  const log = await streams.all("DROPS");
  expect(letters).toHaveLength(count);
  for (const letter of letters) {
    const original = log.find(({ seq }) => String(seq) === letter.headers["Dlq-Stream-Seq"]);
    expect(letter.subject).toBe("dlq.exhausted.drop_created");
    expect(letter.body).toEqual(original?.body);
    expect(letter.headers).toMatchObject({
      "Dlq-Reason": "exhausted",
      "Dlq-Stream": "DROPS",
      "Dlq-Consumer": "planner",
      "Dlq-Subject": "drops.created",
      "Dlq-Redrive-Count": "0",
      "Dlq-Msg-Id": original?.headers["Nats-Msg-Id"],
      "Dlq-Error": expect.stringMatching(/./),
      "Dlq-Error-Code": expect.stringMatching(/./),
      "Dlq-Version": expect.stringMatching(/./),
      "Dlq-Deliveries": expect.stringMatching(/^[1-9]\d*$/),
    });
    for (const name of ["Dlq-First-Seen", "Dlq-Failed-At"]) {
      expect(Date.parse(letter.headers[name] ?? "")).toBeGreaterThan(START);
    }
  }
  const others = world.homeOf("bob").filter(({ user_id }) => user_id !== "anna");
  expect(await shown(stack)).toEqual(expect.arrayContaining(others.map(({ drop_id }) => drop_id)));
});

testWithStack("letters are listed and redriven by the command line", OPTIONS, async (stack) => {
  const count = await giveUpOnAnna(stack);
  await stack.redis.publish("drop_created", "nonsense");
  await eventually(async () => (await stack.streams.count("DLQ")) === count + 1, "all letters");
  const all = (await json(stack, "dlq", "ls")) as Array<Record<string, unknown>>;
  expect(all).toHaveLength(count + 1);
  for (const letter of all) expect(Object.keys(letter)).toEqual(expect.arrayContaining(FIELDS.split(" ")));
  const exhausted = (await json(stack, "dlq", "ls", "--reason", "exhausted")) as Array<{ seq: number }>;
  expect(exhausted).toHaveLength(count);

  const [first, ...rest] = exhausted.map(({ seq }) => String(seq));
  expect(JSON.stringify(await json(stack, "dlq", "show", first as string))).toContain("exhausted");
  expect((await command(stack, "dlq", "redrive", first as string, "--dry-run").exited).code).toBe(0);
  expect(await stack.streams.count("DLQ")).toBe(count + 1);
  await json(stack, "dlq", "redrive", first as string);
  await becomes(async () => {
    expect(await stack.streams.count("DLQ")).toBe(count);
    expect(await shown(stack)).toContain("load-1");
  });
  await json(stack, "dlq", "redrive", ...rest);
  const expected = stack.world.homeOf("bob").map(({ drop_id }) => drop_id);
  await becomes(async () => {
    expect(await shown(stack)).toEqual(expected);
  });
  expect(await stack.streams.count("DLQ")).toBe(1);
});

testWithStack("letters are listed and redriven as a NATS service", OPTIONS, async (stack) => {
  const { connection } = stack.streams;
  const count = await giveUpOnAnna(stack);
  const list = await connection.request("avion.ops.dlq.list", "{}", { timeout: 5_000 });
  expect(list.headers?.get("Nats-Service-Error") ?? "").toBe("");
  expect(list.string()).toContain("exhausted");
  const done = await connection.request("avion.ops.dlq.redrive", '{"all":true}', { timeout: 10_000 });
  expect(done.headers?.get("Nats-Service-Error") ?? "").toBe("");
  const expected = stack.world.homeOf("bob").map(({ drop_id }) => drop_id);
  await becomes(async () => {
    expect(await shown(stack)).toEqual(expected);
    expect(await stack.streams.count("DLQ")).toBe(0);
  });
  expect(count).toBeGreaterThan(0);
});

testWithStack("a letter that fails again comes back with its count raised", OPTIONS, async (stack) => {
  const { upstreams, streams } = stack;
  await giveUpOnAnna(stack);
  const heal = upstreams.inject({ method: "GetFollowersList", user: "anna", code: status.INTERNAL });
  const [letter] = await streams.all("DLQ");
  await json(stack, "dlq", "redrive", String(letter?.seq));
  await becomes(async () => {
    const again = (await streams.all("DLQ")).filter(({ headers }) => headers["Dlq-Redrive-Count"] === "1");
    expect(again.map(({ body }) => body)).toEqual([letter?.body]);
  });
  heal();
});

testWithStack("redriving validates what was invalid again and refuses what was cut", OPTIONS, async (stack) => {
  const { streams, redis } = stack;
  await redis.publish("drop_created", "nonsense");
  await redis.publish("drop_created", JSON.stringify({ drop_id: "x".repeat(2_000_000) }));
  await eventually(async () => (await streams.count("DLQ")) === 2, "two letters");
  expect(await json(stack, "dlq", "ls")).toHaveLength(2);
  for (const { seq, headers } of await streams.all("DLQ")) {
    const { code } = await command(stack, "dlq", "redrive", String(seq)).exited;
    if (headers["Dlq-Reason"] === "toolarge") expect(code).not.toBe(0);
  }
  const letters = await streams.all("DLQ");
  expect(new Set(letters.map(({ headers }) => headers["Dlq-Reason"]))).toEqual(new Set(["invalid", "toolarge"]));
  expect(await streams.count("DROPS")).toBe(0);
});

testWithStack("a letter older than its drop's deletion does not bring the drop back", OPTIONS, async (stack) => {
  const { world, streams, reads } = stack;
  const count = await giveUpOnAnna(stack);
  world.remove("load-1");
  await stack.publish({ channel: "drop_deleted", payload: { drop_id: "load-1", user_id: "anna" } });
  await streams.settled(41);
  await json(stack, "dlq", "redrive", "--all");
  await becomes(async () => {
    expect(await streams.count("DLQ")).toBe(0);
    expect(await shown(stack)).toContain("load-6");
  });
  await streams.settled(await streams.count("DROPS"));
  expect(await shown(stack)).not.toContain("load-1");
  expect((await reads.home("bob", { limit: 100 })).drop_ids).toEqual(world.homeOf("bob").map(({ drop_id }) => drop_id));
  expect(count).toBeGreaterThan(1);
});
