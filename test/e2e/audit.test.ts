import { expect } from "@jest/globals";
import { DAY } from "../../src/kernel/time.js";
import { jsonOf, startCommand } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { type Stack, sharedStack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const READERS = Array.from({ length: 10 }, (_, number) => `reader-${number}`);
const AUTHORS = ["alice", "anna"];
const OPTIONS = { env: { TIMELINE_AUDIT_SETTLE_MS: "300" }, timeoutMs: 90_000 };
/** It audits nothing by itself. Its tests have the same homes, and leave them as they found them. */
const onStack = sharedStack({ ...OPTIONS, env: { ...OPTIONS.env, TIMELINE_AUDIT_INTERVAL_MS: "0" } });

type Entries = { readonly user: string; readonly missing: string[]; readonly unexpected: string[] };
type Audited = {
  readonly users: number;
  readonly differ: number;
  readonly rate: number;
  readonly lag_ms: number;
  readonly incomplete: number;
  readonly repaired: number;
  readonly undecided: string[];
  readonly differences: readonly (Entries & { readonly wrong_score: readonly unknown[] })[];
  readonly remaining: readonly unknown[];
  readonly shared: Readonly<Record<string, unknown>>;
};

/** Drops of an author whose followers do not change. */
function drops(author: string, from: number, count: number) {
  const start = Date.now() - 3_600_000;
  return Array.from({ length: count }, (_, number) => ({
    drop_id: `${author}-${from + number}`,
    user_id: author,
    visibility: "public" as const,
    created_at: start + from + number,
  }));
}

/** Homes that were read, and so are complete. */
async function complete({ world, publish, streams, reads }: Stack): Promise<void> {
  if (world.find("alice-0") !== undefined) return;
  for (const author of AUTHORS) {
    for (const reader of READERS) world.follow(reader, author);
    const own = drops(author, 0, 20);
    world.post(...own);
    await publish(...own.map(created));
  }
  // A service that audits by itself may have found the follows of the world by then, which no event told of.
  await streams.settledWith(40);
  for (const reader of READERS) expect((await reads.home(reader)).degraded).toBe(false);
}

async function expectRight({ redis, world }: Stack, user: string): Promise<void> {
  const entries = world.homeOf(user).map(({ drop_id, created_at }) => [drop_id, created_at]);
  expect({ user, ...(await held(redis, homeKey(user))) }).toEqual({ user, entries, floor: 0 });
}

/** One home of each kind of fault. */
async function spoil({ redis }: Stack): Promise<void> {
  await redis.zrem(homeKey("reader-1"), "alice-3", "anna-19");
  await redis.zadd(homeKey("reader-2"), Date.now() - 60_000, "never");
  await redis.zadd(homeKey("reader-3"), 77, "alice-5");
}

/** One fault of each kind in local, and one drop missing from global. */
async function spoilShared({ redis }: Stack): Promise<void> {
  await redis.zrem("timeline:local", "alice-3");
  await redis.zadd("timeline:local", Date.now() - 60_000, "never");
  await redis.zadd("timeline:local", 77, "alice-5");
  await redis.zrem("timeline:global", "anna-7");
}

onStack("an audit finds missing, unexpected and misdated entries, and --fix repairs them", async (stack) => {
  await complete(stack);
  const clean = await jsonOf<Audited>(stack, ["audit"]);
  // The authors' own homes were never read.
  expect(clean).toMatchObject({ users: 10, incomplete: 2, differ: 0, rate: 0, undecided: [], differences: [] });
  expect(clean.lag_ms).toBeLessThan(5_000);
  await spoil(stack);
  const expected = {
    ...{ users: 10, differ: 3, rate: 0.3, undecided: [] },
    differences: expect.arrayContaining([
      { user: "reader-1", missing: ["anna-19", "alice-3"], unexpected: [], wrong_score: [] },
      { user: "reader-2", missing: [], unexpected: ["never"], wrong_score: [] },
      {
        ...{ user: "reader-3", missing: [], unexpected: [] },
        wrong_score: [{ drop: "alice-5", score: 77, expected: stack.world.find("alice-5")?.created_at }],
      },
    ]),
  };
  expect(await jsonOf<Audited>(stack, ["audit"], { code: 1 })).toMatchObject({ ...expected, repaired: 0 });
  const text = startCommand(stack, ["audit", "--user", "reader-2", "reader-4"]);
  expect((await text.exited).code).toBe(1);
  expect(text.output()).toMatch(/^"reader-2"\n {2}1 unexpected: "never"\n1 of 2 users differ \(50\.00 %\)/);
  expect(await jsonOf<Audited>(stack, ["audit", "--fix"])).toMatchObject({ ...expected, repaired: 3, remaining: [] });
  for (const reader of READERS) await expectRight(stack, reader);
  expect((await jsonOf<Audited>(stack, ["audit", "--users", "4"])).differ).toBe(0);
});

// Invariant 5.
onStack("an audit compares local and global with the log, and --fix repairs them", async (stack) => {
  await complete(stack);
  const { redis, reads, world } = stack;
  for (const name of ["local", "global"] as const) expect((await reads[name]({ limit: 100 })).degraded).toBe(false);
  const same = { result: "same", missing: [], unexpected: [], wrong_score: [], repaired: false };
  expect((await jsonOf<Audited>(stack, ["audit"])).shared).toEqual({ local: same, global: same });
  // Older than all the log can tell of: it stays.
  await redis.zadd("timeline:local", 5, "ancient");
  await redis.zadd("timeline:local", 1, "~floor");
  await spoilShared(stack);
  const local = {
    ...{ result: "differing", missing: ["alice-3"], unexpected: expect.arrayContaining(["never"]) },
    wrong_score: [{ drop: "alice-5", score: 77, expected: world.find("alice-5")?.created_at }],
  };
  const found = await jsonOf<Audited>(stack, ["audit"], { code: 1 });
  expect(found).toMatchObject({ users: 10, differ: 0 });
  expect(found.shared).toMatchObject({ local, global: { result: "differing", missing: ["anna-7"], repaired: false } });
  expect((await jsonOf<Audited>(stack, ["audit", "--timeline", "home"])).shared).toEqual({});
  expect((await jsonOf<Audited>(stack, ["audit", "--user", "reader-1"])).shared).toEqual({});
  const text = startCommand(stack, ["audit", "--timeline", "global"]);
  expect((await text.exited).code).toBe(1);
  expect(text.output()).toBe('global\n  1 missing: "anna-7"\nglobal: differs\n');
  const fixed = await jsonOf<Audited>(stack, ["audit", "--timeline", "local", "global", "--fix"]);
  expect(fixed).toMatchObject({ users: 0, shared: { local: { repaired: true }, global: { repaired: true } } });
  expect((await jsonOf<Audited>(stack, ["audit"])).shared).toEqual({ local: same, global: same });
  expect(await redis.zscore("timeline:local", "never")).toBeNull();
});

onStack("an audit leaves out homes that their next read rebuilds", async (stack) => {
  await complete(stack);
  const { redis } = stack;
  const whole = await redis.pttl(homeKey("reader-1"));
  // The last read was long ago, or gave a longer time to live than reads give now: nobody knows when it was.
  for (const [reader, left] of Object.entries({ "reader-1": whole - 8 * DAY, "reader-2": whole + 8 * DAY })) {
    await redis.zadd(homeKey(reader), Date.now() - 60_000, "never");
    await redis.pexpire(homeKey(reader), left);
  }
  expect(await jsonOf<Audited>(stack, ["audit"])).toMatchObject({ users: 8, incomplete: 4, differ: 0 });
});

// The last two leave something.
onStack("an audit of a user whom the upstreams do not know says so", async (stack) => {
  const { world, reads, redis } = stack;
  world.follow("unread", "alice");
  // Somebody has asked for this home, which is empty and complete.
  expect(await reads.home("nobody")).toMatchObject({ drop_ids: [], degraded: false });
  const args = ["audit", "--user", "nobody", "never-read", "unread"];
  const unknown = expect.arrayContaining(["nobody", "never-read"]);
  expect(await jsonOf<Audited>(stack, args, { code: 1 })).toMatchObject({
    users: 0,
    incomplete: 1,
    differ: 0,
    unknown,
  });
  const text = startCommand(stack, ["audit", "--user", "nobody"]);
  expect((await text.exited).code).toBe(1);
  expect(text.output()).toMatch(/^"nobody" is no user that the upstreams know[^\n]*\n0 of 0 users differ/);
  expect(await jsonOf<Audited>(stack, ["audit", "--user", "alice"])).toMatchObject({ unknown: [], incomplete: 1 });
  // The rest of them differs from what the upstreams say.
  await redis.zadd(homeKey("nobody"), Date.now() - 60_000, "never");
  const found = await jsonOf<Audited>(stack, ["audit", "--user", "nobody"], { code: 1 });
  expect(found).toMatchObject({ users: 1, differ: 1, unknown: [] });
});

// Invariant 5.
onStack(
  "an audit finds what neither the log nor local and global have, and --fix takes it from the upstreams",
  async (stack) => {
    await complete(stack);
    const { reads, redis, world } = stack;
    for (const name of ["local", "global"] as const) await reads[name]();
    // No event told of it, and nobody has asked the upstreams since.
    world.post(...drops("alice", 500, 1));
    // The log has it, and the upstreams have it no more.
    const phantom = created({ ...drops("alice", 600, 1)[0], drop_id: "phantom" } as Parameters<typeof created>[0]);
    const before = await stack.streams.count("DROPS");
    await stack.publish(phantom);
    await stack.streams.settledWith(before + 1);
    const differing = { result: "differing", missing: ["alice-500"], unexpected: ["phantom"] };
    const audited = (args: readonly string[], code = 0) =>
      jsonOf<Audited>(stack, ["audit", "--timeline", "local", "global", ...args], { code });
    expect((await audited([], 1)).shared).toMatchObject({ local: differing, global: differing });
    const repaired = { ...differing, repaired: true };
    expect((await audited(["--fix"])).shared).toMatchObject({ local: repaired, global: repaired });
    expect(await redis.zscore("timeline:local", "alice-500")).not.toBeNull();
    expect(await redis.zscore("timeline:global", "phantom")).toBeNull();
  },
);

testWithStack("in a healthy system under load an audit finds nothing", { ...OPTIONS, slow: true }, async (stack) => {
  await complete(stack);
  const { world, publish } = stack;
  let over = false;
  let events = 0;
  const load = (async () => {
    for (let round = 1; !over; round += 1) {
      // Dated back: their age does not excuse them.
      const fresh = drops("alice", 100 * round, 10);
      world.post(...fresh);
      await publish(...fresh.map(created));
      const gone = `alice-${100 * round + 3}`;
      world.remove(gone);
      await publish(deleted(gone, "alice"));
      events += 11;
      const [reader, author] = [READERS[(round / 5) % 10], AUTHORS[Math.floor(round / 50)]];
      if (reader !== undefined && author !== undefined) {
        await publish(unfollowed(reader, author, world.unfollow(reader, author)));
        await publish(followed(reader, author, world.follow(reader, author)));
        events += 2;
      }
      await eventually(async () => (await stack.streams.count("DROPS")) >= 40 + events - 20, "the load is taken in");
    }
  })();
  for (let round = 0; round < 4; round += 1) {
    const report = await jsonOf<Audited>(stack, ["audit"]);
    expect(report).toMatchObject({ differ: 0, undecided: [], differences: [] });
  }
  over = true;
  await load;
  await stack.streams.settled(40 + events);
  expect(await jsonOf<Audited>(stack, ["audit"])).toMatchObject({ users: 10, differ: 0 });
});

testWithStack(
  "an audit does not look below a floor that has risen",
  { ...OPTIONS, slow: true, env: { ...OPTIONS.env, TIMELINE_MAX_ENTRIES: "20" } },
  async (stack) => {
    await complete(stack);
    const { redis } = stack;
    expect((await held(redis, homeKey("reader-1"))).floor).toBeGreaterThan(0);
    expect(await jsonOf<Audited>(stack, ["audit"])).toMatchObject({ users: 10, differ: 0 });
    const [newest] = (await held(redis, homeKey("reader-1"))).entries;
    await redis.zrem(homeKey("reader-1"), String(newest?.[0]));
    await redis.zadd(homeKey("reader-1"), 5, "sunk");
    const { differences } = await jsonOf<Audited>(stack, ["audit", "--fix"]);
    expect(differences).toEqual([{ user: "reader-1", missing: [newest?.[0]], unexpected: [], wrong_score: [] }]);
    expect((await held(redis, homeKey("reader-1"))).entries[0]).toEqual(newest);
  },
);

// Invariant 5.
testWithStack(
  "the audit loop repairs homes, and admits events that were lost unnoticed",
  { timeoutMs: 90_000, env: { ...OPTIONS.env, TIMELINE_AUDIT_INTERVAL_MS: "500" } },
  async (stack) => {
    await complete(stack);
    const { redis, streams, world } = stack;
    // The follows of the world, which no event told of, are found first.
    await streams.settledWith(60);
    for (const name of ["local", "global"] as const) await stack.reads[name]();
    await spoil(stack);
    await spoilShared(stack);
    await eventually(
      async () =>
        (await redis.zscore("timeline:local", "never")) === null &&
        (await redis.zscore("timeline:global", "anna-7")) !== null,
      "local and global are repaired",
      30_000,
    );
    for (const reader of READERS)
      await eventually(
        async () => {
          const { entries, floor } = await held(redis, homeKey(reader));
          return floor === 0 && JSON.stringify(entries) === JSON.stringify(right(stack, reader));
        },
        `${reader} is repaired`,
        30_000,
      );
    const [lost] = drops("alice", 500, 1);
    if (lost) world.post(lost);
    await eventually(
      async () => (await redis.zscore("timeline:local", "alice-500")) !== null,
      "it is admitted",
      30_000,
    );
    const metrics = await (await fetch(`${stack.service.httpUrl}/metrics`)).text();
    for (const kind of ["missing", "unexpected", "wrong_score"])
      expect(metrics).toMatch(new RegExp(`^timeline_audit_differences_total\\{[^}]*kind="${kind}"[^}]*\\} [1-9]`, "m"));
    expect(metrics).toMatch(/^timeline_audited_total(\{[^}]*\})? [1-9]/m);
    expect(metrics).toMatch(/^timeline_audit_repaired_total(\{[^}]*\})? [1-9]/m);
    const wanted = [
      ...["home", "local", "global"].flatMap((timeline) =>
        ["same", "differing"].map((result) => seriesOf("timeline_audit_timelines", { timeline, result })),
      ),
      seriesOf("timeline_audit_timelines", { timeline: "local", result: "failed" }, "0"),
      seriesOf("timeline_audit_repairs", { result: "repaired" }),
      seriesOf("timeline_audit_repairs", { result: "failed" }, "0"),
    ];
    await eventually(
      async () => {
        const text = await (await fetch(`${stack.service.httpUrl}/metrics`)).text();
        return wanted.every((series) => series.test(text)) || String(wanted.find((series) => !series.test(text)));
      },
      "every result is counted",
      30_000,
    );
    expect(await streams.count("DLQ")).toBe(0);
  },
);

// Invariant 5.
testWithStack(
  "an event that was lost since the last round of another process is admitted, however long ago that round was",
  { service: false },
  async ({ redis, streams, world, start }) => {
    const minutesAgo = (minutes: number): number => Date.now() - minutes * 60_000;
    await redis.set("timeline:x:reconciled", minutesAgo(40));
    world.post({ drop_id: "lost", user_id: "alice", created_at: minutesAgo(30) });
    world.touch("lost", minutesAgo(30));
    await start({ roles: "fanout" });
    await eventually(async () => (await streams.count("DROPS")) === 1, "it is admitted", 20_000);
    const isRecent = async () => Number(await redis.get("timeline:x:reconciled")) > minutesAgo(1);
    await eventually(isRecent, "the next round begins where this one ended");
    expect(await redis.pttl("timeline:x:reconciled")).toBeGreaterThan(6 * 86_400_000);
  },
);

/** A counter with these labels, and a value that begins so. */
function seriesOf(name: string, labels: Readonly<Record<string, string>>, value = "[1-9]"): RegExp {
  const all = Object.entries(labels).map(([label, text]) => `(?=[^}]*${label}="${text}")`);
  return new RegExp(`^${name}_total\\{${all.join("")}[^}]*\\} ${value}`, "m");
}

const right = ({ world }: Stack, user: string): [string, number][] =>
  world.homeOf(user).map(({ drop_id, created_at }) => [drop_id, created_at]);

testWithStack(
  "an audit of a million homes finds all there are among many other keys",
  { ...OPTIONS, slow: true },
  async (stack) => {
    await complete(stack);
    const fill = "for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('set', 'other:' .. i, '') end";
    for (let from = 0; from < 1_200_000; from += 50_000) await stack.redis.eval(fill, 0, from, from + 49_999);
    const { users, differ } = await jsonOf<Audited>(stack, ["audit", "--users", "1000000", "--timeline", "home"]);
    expect({ users, differ }).toEqual({ users: READERS.length, differ: 0 });
  },
);
