import { spawn } from "node:child_process";
import { once } from "node:events";
import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { headers } from "nats";
import { VERSION } from "../../src/kernel/version.js";
import { becomes, eventually } from "../support/eventually.js";
import { type Ending, program, runMain, type ServiceProcess } from "../support/service.js";
import { type SharedStack, type Stack, sharedStack } from "../support/stack.js";
import { created, type TimelineEvent } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
const FIELDS =
  "seq reason event error error_code stream stream_seq consumer deliveries first_seen failed_at redrive_count";

const onStack = sharedStack({
  env: { TIMELINE_MAX_ATTEMPTS: "3", TIMELINE_RETRY_BASE_MS: "50" },
  timeoutMs: 90_000,
});

/** A test that begins with an empty DLQ. */
function testDeadLetters(name: string, work: (stack: SharedStack) => Promise<void>): void {
  onStack(name, async (stack) => {
    await stack.streams.manager.streams.purge("DLQ");
    await work(stack);
  });
}

/** Drops of five authors, each with two followers. */
function load({ world, id }: SharedStack, count: number): TimelineEvent[] {
  const authors = ["alice", "anna", "arno", "axel", "abel"].map(id);
  for (const author of authors) for (const reader of ["bob", "carol"]) world.follow(id(reader), author);
  const drops = Array.from({ length: count }, (_, number) => {
    const user_id = authors[number % authors.length] as string;
    return { drop_id: id(`load-${number}`), user_id, visibility: "public" as const, created_at: START + number };
  });
  world.post(...drops);
  return drops.map(created);
}

/** Lets anna's drops fail until they are given up; yields how many dead letters that made. */
async function giveUpOnAnna(scene: SharedStack): Promise<number> {
  const { streams, upstreams, id } = scene;
  const history = load(scene, 40);
  const heal = upstreams.inject({ method: "GetFollowersList", user: id("anna"), code: status.INTERNAL });
  await scene.publish(...history);
  await streams.settled(history.length, 40_000);
  heal();
  return history.filter(({ payload }) => "user_id" in payload && payload.user_id === id("anna")).length;
}

async function shown({ redis, id }: SharedStack): Promise<string[]> {
  return redis.zrevrange(`timeline:home:${id("bob")}`, 0, -1);
}

/** Runs a command of the program against the stack's brokers. */
function command(stack: Stack, ...args: readonly string[]): ServiceProcess {
  return commandWith(stack, {}, ...args);
}

function commandWith(
  { serviceOptions }: Stack,
  env: Readonly<Record<string, string>>,
  ...args: readonly string[]
): ServiceProcess {
  const { redisUrl, natsUrl, usersAddress, postsAddress } = serviceOptions;
  return runMain(args, {
    ...env,
    ...{ REDIS_URL: redisUrl, NATS_URL: natsUrl },
    ...{ TIMELINE_USER_SERVICE_ADDR: usersAddress, TIMELINE_POST_SERVICE_ADDR: postsAddress },
  });
}

async function json(stack: Stack, ...args: readonly string[]): Promise<unknown> {
  const run = command(stack, ...args, "--json");
  expect({ ...(await run.exited), args, errors: run.errors() }).toMatchObject({ code: 0 });
  return JSON.parse(run.output());
}

type Finished = Ending & { readonly output: string; readonly errors: string };

async function finished(run: ServiceProcess): Promise<Finished> {
  return { ...(await run.exited), output: run.output(), errors: run.errors() };
}

/** A dead letter as it lies there days later; yields its sequence. */
async function deadLetterFrom(
  { streams }: Stack,
  daysAgo: number,
  payload: Readonly<Record<string, unknown>>,
): Promise<number> {
  const stamp = new Date(Date.now() - daysAgo * 86_400_000).toISOString();
  const held = headers();
  const fields = {
    ...{ "Dlq-Reason": "exhausted", "Dlq-Error": "GetFollowersList: INTERNAL", "Dlq-Error-Code": "failed" },
    ...{ "Dlq-Stream": "DROPS", "Dlq-Stream-Seq": "1", "Dlq-Consumer": "planner", "Dlq-Subject": "drops.created" },
    ...{ "Dlq-Deliveries": "3", "Dlq-First-Seen": stamp, "Dlq-Failed-At": stamp, "Dlq-Redrive-Count": "0" },
  };
  for (const [name, value] of Object.entries(fields)) held.set(name, value);
  const body = JSON.stringify(payload);
  return (await streams.connection.jetstream().publish("dlq.exhausted.drop_created", body, { headers: held })).seq;
}

// Invariant 8.
testDeadLetters("a failure of one author alone is given up, and holds up nobody else", async (stack) => {
  const { streams, world } = stack;
  const count = await giveUpOnAnna(stack);
  const deadLetters = await streams.all("DLQ");
  const log = await streams.all("DROPS");
  expect(deadLetters).toHaveLength(count);
  for (const deadLetter of deadLetters) {
    const original = log.find(({ seq }) => String(seq) === deadLetter.headers["Dlq-Stream-Seq"]);
    expect(deadLetter.subject).toBe("dlq.exhausted.drop_created");
    expect(deadLetter.body).toEqual(original?.body);
    expect(deadLetter.headers).toMatchObject({
      "Dlq-Reason": "exhausted",
      "Dlq-Stream": "DROPS",
      "Dlq-Consumer": "planner",
      "Dlq-Subject": "drops.created",
      "Dlq-Redrive-Count": "0",
      "Dlq-Msg-Id": original?.headers["Nats-Msg-Id"],
      "Dlq-Error": expect.stringMatching(/./),
      "Dlq-Error-Code": expect.stringMatching(/./),
      "Dlq-Version": VERSION,
      "Dlq-Deliveries": expect.stringMatching(/^[1-9]\d*$/),
    });
    for (const name of ["Dlq-First-Seen", "Dlq-Failed-At"]) {
      expect(Date.parse(deadLetter.headers[name] ?? "")).toBeGreaterThan(START);
    }
  }
  const others = world.homeOf(stack.id("bob")).filter(({ user_id }) => user_id !== stack.id("anna"));
  expect(await shown(stack)).toEqual(expect.arrayContaining(others.map(({ drop_id }) => drop_id)));
});

testDeadLetters("dead letters are listed and redriven by the command line", async (stack) => {
  const count = await giveUpOnAnna(stack);
  await stack.redis.publish("drop_created", stack.id("nonsense"));
  await eventually(async () => (await stack.streams.count("DLQ")) === count + 1, "all letters");
  const all = (await json(stack, "dlq", "ls")) as Array<Record<string, unknown>>;
  expect(all).toHaveLength(count + 1);
  for (const deadLetter of all) expect(Object.keys(deadLetter)).toEqual(expect.arrayContaining(FIELDS.split(" ")));
  const exhausted = (await json(stack, "dlq", "ls", "--reason", "exhausted")) as Array<{ seq: number }>;
  expect(exhausted).toHaveLength(count);

  const [first, ...rest] = exhausted.map(({ seq }) => String(seq));
  const { body, reason } = (await json(stack, "dlq", "show", first as string)) as {
    readonly reason: string;
    readonly body: { readonly drop_id: string };
  };
  expect(reason).toBe("exhausted");
  expect((await command(stack, "dlq", "redrive", first as string, "--dry-run").exited).code).toBe(0);
  expect(await stack.streams.count("DLQ")).toBe(count + 1);
  await json(stack, "dlq", "redrive", first as string);
  await becomes(async () => {
    expect(await stack.streams.count("DLQ")).toBe(count);
    expect(await shown(stack)).toContain(body.drop_id);
  });
  await json(stack, "dlq", "redrive", ...rest);
  const expected = stack.world.homeOf(stack.id("bob")).map(({ drop_id }) => drop_id);
  await becomes(async () => {
    expect(await shown(stack)).toEqual(expected);
  });
  expect(await stack.streams.count("DLQ")).toBe(1);
});

testDeadLetters("dead letters are listed and redriven as a NATS service", async (stack) => {
  const { connection } = stack.streams;
  const count = await giveUpOnAnna(stack);
  const list = await connection.request("avion.ops.dlq.list", "{}", { timeout: 5_000 });
  expect(list.headers?.get("Nats-Service-Error") ?? "").toBe("");
  expect(list.string()).toContain("exhausted");
  const done = await connection.request("avion.ops.dlq.redrive", '{"all":true}', { timeout: 10_000 });
  expect(done.headers?.get("Nats-Service-Error") ?? "").toBe("");
  const expected = stack.world.homeOf(stack.id("bob")).map(({ drop_id }) => drop_id);
  await becomes(async () => {
    expect(await shown(stack)).toEqual(expected);
    expect(await stack.streams.count("DLQ")).toBe(0);
  });
  expect(count).toBeGreaterThan(0);
});

testDeadLetters("a dead letter that fails again comes back with its count raised", async (stack) => {
  const { upstreams, streams } = stack;
  await giveUpOnAnna(stack);
  const heal = upstreams.inject({ method: "GetFollowersList", user: stack.id("anna"), code: status.INTERNAL });
  const [deadLetter] = await streams.all("DLQ");
  await json(stack, "dlq", "redrive", String(deadLetter?.seq));
  await becomes(async () => {
    const again = (await streams.all("DLQ")).filter(({ headers }) => headers["Dlq-Redrive-Count"] === "1");
    expect(again.map(({ body }) => body)).toEqual([deadLetter?.body]);
  });
  heal();
});

testDeadLetters("a redrive killed between publishing and deleting publishes each dead letter once", async (stack) => {
  const { streams } = stack;
  const count = await giveUpOnAnna(stack);
  const before = await streams.count("DROPS");
  const killed = commandWith(stack, { AVION_TEST_FAILPOINTS: "redriven=kill" }, "dlq", "redrive", "--all");
  expect((await killed.exited).signal).toBe("SIGKILL");
  expect([await streams.count("DROPS"), await streams.count("DLQ")]).toEqual([before + 1, count]);
  expect(await json(stack, "dlq", "redrive", "--all")).toMatchObject({ refused: [], failed: [], overtaken: [] });
  expect([await streams.count("DROPS"), await streams.count("DLQ")]).toEqual([before + count, 0]);
  const expected = stack.world.homeOf(stack.id("bob")).map(({ drop_id }) => drop_id);
  await becomes(async () => {
    expect(await shown(stack)).toEqual(expected);
  });
});

testDeadLetters("redriving validates what was invalid again and refuses what was cut", async (stack) => {
  const { streams, redis, id } = stack;
  await redis.publish("drop_created", id("nonsense"));
  await redis.publish("drop_created", JSON.stringify({ drop_id: "x".repeat(2_000_000) }));
  await eventually(async () => (await streams.count("DLQ")) === 2, "two letters");
  const why = { invalid: "is not JSON", toolarge: "only its beginning was kept" };
  for (const { seq, headers: of } of await streams.all("DLQ")) {
    const { code, output } = await finished(command(stack, "dlq", "redrive", String(seq), "--json"));
    expect(code).toBe(1);
    const because = expect.stringContaining(why[of["Dlq-Reason"] as keyof typeof why]);
    expect(JSON.parse(output)).toEqual({ redriven: [], refused: [{ seq, why: because }], failed: [], overtaken: [] });
  }
  const deadLetters = await streams.all("DLQ");
  expect(new Set(deadLetters.map(({ headers: of }) => of["Dlq-Reason"]))).toEqual(new Set(["invalid", "toolarge"]));
  expect(await streams.count("DROPS")).toBe(0);
});

testDeadLetters("a payload that has become valid is admitted by its redrive, and shown", async (stack) => {
  const { streams, redis, world, id } = stack;
  world.follow(id("bob"), id("alice"));
  const created_at = Date.now() + 5 * 60_000 + 5_000;
  const drop = { drop_id: id("ahead"), user_id: id("alice"), visibility: "public" as const, created_at };
  world.post(drop);
  await redis.publish("drop_created", JSON.stringify(drop));
  await eventually(async () => (await streams.count("DLQ")) === 1, "a letter");
  const [deadLetter] = await streams.all("DLQ");
  expect((await command(stack, "dlq", "redrive", "--reason", "invalid").exited).code).toBe(1);
  await eventually(() => Date.now() > created_at - 5 * 60_000, "it is not too far ahead any more");
  expect(await json(stack, "dlq", "redrive", "--reason", "invalid")).toMatchObject({ redriven: [deadLetter?.seq] });
  await becomes(async () => {
    expect(await shown(stack)).toEqual([id("ahead")]);
  });
  expect(await streams.count("DLQ")).toBe(0);
});

// Invariant 4.
testDeadLetters("a dead letter older than its drop's deletion does not bring the drop back", async (stack) => {
  const { world, streams, reads, id } = stack;
  const count = await giveUpOnAnna(stack);
  world.remove(id("load-1"));
  await stack.publish({ channel: "drop_deleted", payload: { drop_id: id("load-1"), user_id: id("anna") } });
  await streams.settled(41);
  await json(stack, "dlq", "redrive", "--all");
  await becomes(async () => {
    expect(await streams.count("DLQ")).toBe(0);
    expect(await shown(stack)).toContain(id("load-6"));
  });
  await streams.settled(await streams.count("DROPS"));
  expect(await shown(stack)).not.toContain(id("load-1"));
  expect((await reads.home(id("bob"), { limit: 100 })).drop_ids).toEqual(
    world.homeOf(id("bob")).map(({ drop_id }) => drop_id),
  );
  expect(count).toBeGreaterThan(1);
});

// Invariant 4.
testDeadLetters("a dead letter older than the log is redriven only if its drop is still there", async (stack) => {
  const { world, streams, id } = stack;
  world.follow(id("bob"), id("alice"));
  const drops = ["kept", "gone"].map((name, at) => ({
    ...{ drop_id: id(name), user_id: id("alice"), visibility: "public" as const, created_at: START + at },
  }));
  world.post(...drops);
  world.remove(id("gone"));
  const [kept, gone] = [await deadLetterFrom(stack, 8, drops[0] ?? {}), await deadLetterFrom(stack, 8, drops[1] ?? {})];
  const [natsOnly] = [{ NATS_URL: stack.serviceOptions.natsUrl }];
  const blind = await finished(runMain(["dlq", "redrive", "--all", "--json"], natsOnly));
  expect(blind.code).toBe(1);
  expect(JSON.parse(blind.output).refused).toHaveLength(2);
  expect(blind.output).toContain("TIMELINE_POST_SERVICE_ADDR");
  const dry = await json(stack, "dlq", "redrive", "--all", "--dry-run");
  const report = { redriven: [kept], refused: [], failed: [], overtaken: [{ seq: gone, why: expect.any(String) }] };
  expect(dry).toEqual({ ...report, dry_run: true });
  expect([await streams.count("DLQ"), await streams.count("DROPS")]).toEqual([2, 0]);
  expect(await json(stack, "dlq", "redrive", "--all")).toEqual(report);
  await becomes(async () => {
    expect(await shown(stack)).toEqual([id("kept")]);
  });
  const log = await streams.all("DROPS");
  expect(log.map(({ headers: of }) => of["Timeline-Silent"])).toEqual(["1"]);
  expect(await streams.count("DLQ")).toBe(0);
});

testDeadLetters("dead letters are grouped for people, filtered, shown and removed", async (stack) => {
  const { streams } = stack;
  const seqs: number[] = [];
  for (const author of ["42", "42", "7"])
    seqs.push(await deadLetterFrom(stack, 1, { drop_id: author, user_id: author }));
  const [old] = [await deadLetterFrom(stack, 20, { drop_id: "d", user_id: "42" })];
  const list = await finished(command(stack, "dlq", "ls"));
  expect(list.output).toMatch(/^4 x GetFollowersList: INTERNAL for 2 authors, most often 42 \(3\)\n/);
  const single = await finished(command(stack, "dlq", "ls", "--ungrouped", "--since", "2d"));
  expect(single.output.trim().split("\n")).toHaveLength(3);
  const seqsOf = async (...args: readonly string[]) =>
    ((await json(stack, "dlq", "ls", ...args)) as Array<{ seq: number }>).map(({ seq }) => seq);
  expect(await seqsOf("--since", "2d")).toEqual(seqs);
  expect(await seqsOf("--event", "drop_created", "--error", "INTERNAL")).toEqual([...seqs, old]);
  expect(await seqsOf("--event", "fanout_job")).toEqual([]);
  expect(await seqsOf("--error", "none of this")).toEqual([]);
  const shownOne = await finished(command(stack, "dlq", "show", String(old)));
  expect(shownOne.output).toContain("Dlq-Error: GetFollowersList: INTERNAL");
  expect(shownOne.output).toContain('  "user_id": "42"');
  const missing = await finished(command(stack, "dlq", "show", "999"));
  expect(missing).toMatchObject({ code: 1, output: "", errors: expect.stringContaining("999") });
  const partly = await finished(command(stack, "dlq", "rm", String(old), "999"));
  expect(partly).toMatchObject({ code: 1, errors: expect.stringContaining("999") });
  expect(await json(stack, "dlq", "rm", "--since", "2d", "--dry-run")).toMatchObject({ removed: seqs });
  expect(await streams.count("DLQ")).toBe(4);
  expect(await json(stack, "dlq", "rm", "--since", "2d")).toEqual({ removed: seqs, failed: [] });
  expect(await seqsOf()).toEqual([old]);
});

testDeadLetters("Ctrl-C ends a redrive with 130; the report names those that were not tried", async (stack) => {
  const seqs: number[] = [];
  for (const author of ["1", "2", "3", "4"])
    seqs.push(
      await deadLetterFrom(stack, 1, { drop_id: author, user_id: author, visibility: "public", created_at: START }),
    );
  const redrive = command(stack, "dlq", "redrive", "--all", "--rate", "0.05", "--json");
  await eventually(async () => (await stack.streams.count("DLQ")) === 3, "one is redriven");
  redrive.signal("SIGINT");
  const { code, output } = await finished(redrive);
  expect({ code, report: JSON.parse(output) }).toMatchObject({
    ...{ code: 130, report: { redriven: [seqs[0]], failed: seqs.slice(1).map((seq) => ({ seq })) } },
  });
});

testDeadLetters("a pipe that is closed changes no exit code", async (stack) => {
  const js = stack.streams.connection.jetstream();
  await js.publish("dlq.toolarge.drop_created", "{");
  const child = spawn(process.execPath, [...program(), "dlq", "redrive", "--all"], {
    env: { ...process.env, NATS_URL: stack.serviceOptions.natsUrl },
    stdio: ["ignore", "pipe", "inherit"],
  });
  child.stdout.destroy();
  expect(await once(child, "exit")).toEqual([1, null]);
});

testDeadLetters(
  "the filter by event takes each kind that is listed, and names them all for any other",
  async (stack) => {
    const kinds = ["unknown", "advisory", "fanout_completed", "outbox_event"];
    for (const kind of kinds)
      await stack.streams.connection.jetstream().publish(`dlq.exhausted.${kind}`, Buffer.from("{}"));
    expect(await json(stack, "dlq", "ls")).toMatchObject(kinds.map((event) => ({ event })));
    for (const kind of kinds) {
      const [one, ...others] = (await json(stack, "dlq", "ls", "--event", kind)) as { event: string; seq: number }[];
      expect([one?.event, others]).toEqual([kind, []]);
      const removed = await json(stack, "dlq", "rm", "--event", kind, "--force");
      expect(removed).toEqual({ removed: [one?.seq], failed: [] });
    }
    for (const command of ["ls", "rm", "redrive"]) {
      const other = await finished(commandWith(stack, {}, "dlq", command, "--event", "party"));
      expect(other.code).toBe(2);
      for (const kind of [...kinds, "drop_created", "fanout_job", "timeline_completed"])
        expect(other.errors).toContain(kind);
    }
  },
);
