import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { limited } from "../support/limits.js";
import { openReader } from "../support/reader.js";
import type { Service } from "../support/service.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, unfollowed } from "../support/timeline-events.js";
import { homeKey } from "../support/timeline-keys.js";

const READERS = Array.from({ length: 8 }, (_, number) => `reader-${number}`);
/** Audits of whole timelines find nothing meanwhile: what is repaired is repaired by the checks of publications. */
const ENV = { TIMELINE_AUDIT_INTERVAL_MS: "0" };
/** Looks at no publication: however slow the test is, what it changes is changed before the first look. */
const LATE = { ...ENV, ...limited({ publicationChecks: { delayMs: 600_000 } }) };
const SOON = { ...ENV, ...limited({ publicationChecks: { delayMs: 200 } }) };

/** Homes, local and global that say they are complete. */
async function complete({ world, reads }: Pick<Stack, "world" | "reads">, authors: readonly string[]): Promise<void> {
  for (const author of authors) for (const reader of READERS) world.follow(reader, author);
  for (const user of [...READERS, ...authors]) expect((await reads.home(user)).degraded).toBe(false);
  for (const name of ["local", "global"] as const) expect((await reads[name]()).degraded).toBe(false);
}

const drop = (drop_id: string, user_id: string) => ({
  ...{ drop_id, user_id, visibility: "public" as const },
  created_at: Date.now(),
});

async function publishNow({ world, publish, streams }: Stack, of: ReturnType<typeof drop>): Promise<void> {
  const before = await streams.count("COMPLETIONS");
  world.post(of);
  await publish(created(of));
  await eventually(async () => (await streams.count("COMPLETIONS")) > before, "it is completed");
}

/** The process that looks at what the first one has published. */
async function startChecks({ service, start }: Stack): Promise<Service> {
  await service.stop();
  return start({ env: SOON });
}

/** Number of publications with this result. */
async function results(service: Service): Promise<Record<string, number>> {
  const text = await (await fetch(`${service.httpUrl}/metrics`)).text();
  const series = text.matchAll(/^timeline_audit_publications_total\{[^}]*result="(\w+)"[^}]*\} (\d+)/gm);
  return Object.fromEntries([...series].map(([, result, count]) => [result, Number(count)]));
}

// Invariant 5.
testWithStack(
  "a drop lost right after its publication, and a deleted one that is still in a timeline, are found and repaired",
  { env: LATE },
  async (stack) => {
    const { redis, world, publish, streams } = stack;
    await complete(stack, ["alice"]);
    await publishNow(stack, drop("lost", "alice"));
    const lossy = [homeKey("reader-3"), "timeline:local"];
    for (const key of lossy) expect(await redis.zrem(key, "lost")).toBe(1);
    const kept = drop("kept", "alice");
    await publishNow(stack, kept);
    world.remove("kept");
    await publish(deleted("kept", "alice"));
    await eventually(async () => (await streams.count("COMPLETIONS")) === 3, "the deletion is completed");
    await redis.zadd(homeKey("reader-5"), kept.created_at, "kept");

    const service = await startChecks(stack);
    for (const key of lossy)
      await eventually(async () => (await redis.zscore(key, "lost")) !== null, `${key} is repaired`);
    await eventually(async () => (await redis.zscore(homeKey("reader-5"), "kept")) === null, "it is removed");
    const counted = async (): Promise<boolean> => {
      const counts = await results(service);
      return counts["lost"] === 1 && counts["kept"] === 1;
    };
    await eventually(counted, "both are counted");
    const said = (): boolean => /timelines differ from a publication/.test(service.output());
    await eventually(said, "it is logged");
    const repaired = async (): Promise<true | string> => {
      const metrics = await (await fetch(`${service.httpUrl}/metrics`)).text();
      const series = metrics.match(/^timeline_audit_(repairs|publications)_total\{.*$/gm) ?? [];
      return series.some((one) => /repairs_total\{[^}]*result="repaired"[^}]*\} 3$/.test(one)) || series.join(", ");
    };
    await eventually(repaired, "all repairs are counted");
  },
);

testWithStack("what is no publication is removed from the checks at once, and said", { env: ENV }, async (stack) => {
  const { connection, manager } = stack.streams;
  const publish = (body: string) => connection.jetstream().publish("checks.publication", body);
  const [, , last] = [await publish("junk"), await publish("null"), await publish("{}")];
  const handled = async (): Promise<boolean> => {
    const { ack_floor, num_redelivered } = await manager.consumers.info("CHECKS", "publications");
    expect(num_redelivered).toBe(0);
    return ack_floor.stream_seq >= last.seq;
  };
  await eventually(handled, "they are acked");
  expect((await results(stack.service))["failed"]).toBe(3);
  await eventually(() => stack.service.output().match(/in CHECKS cannot be parsed/g)?.length === 3, "it is logged");
  expect(await stack.streams.count("DLQ")).toBe(0);
});

testWithStack("the checks of a process that dies are done by another", { env: ENV, service: false }, async (stack) => {
  const env = { TIMELINE_ACK_WAIT_MS: "3500" };
  const api = await stack.start({ roles: "api,bridge", env });
  const dying = await stack.start({ roles: "fanout", env: { ...env, ...LATE } });
  const reads = openReader(api.grpcAddress);
  stack.defer(() => reads.close());
  await complete({ world: stack.world, reads }, ["alice"]);
  await publishNow(stack, drop("orphan", "alice"));
  expect(await stack.redis.zrem(homeKey("reader-2"), "orphan")).toBe(1);
  await dying.crash();
  await stack.start({ roles: "fanout", env: { ...env, ...SOON } });
  await eventually(
    async () => (await stack.redis.zscore(homeKey("reader-2"), "orphan")) !== null,
    "the other process repairs it",
    30_000,
  );
});

testWithStack(
  "deletions, unfollows, follows and trims do not count as losses",
  {
    timeoutMs: 120_000,
    env: {
      ...ENV,
      TIMELINE_MAX_ENTRIES: "20",
      ...limited({ publicationChecks: { rate: 1_000, delayMs: 300 } }),
    },
  },
  async (stack) => {
    const { world, publish, streams } = stack;
    await complete(stack, ["alice", "anna"]);
    let completions = 0;
    for (let round = 0; round < 40; round += 1) {
      const author = round % 2 === 0 ? "alice" : "anna";
      const fresh = [drop(`${author}-${round}-a`, author), drop(`${author}-${round}-b`, author)];
      world.post(...fresh);
      await publish(...fresh.map(created));
      world.remove(`${author}-${round}-a`);
      await publish(deleted(`${author}-${round}-a`, author));
      const reader = READERS[round % READERS.length] as string;
      await publish(unfollowed(reader, author, world.unfollow(reader, author)));
      if (round % 3 === 0) await publish(followed(reader, author, world.follow(reader, author)));
      completions += 3;
      await eventually(async () => (await streams.count("COMPLETIONS")) >= completions, "the round is completed");
    }
    await eventually(
      async () => {
        const counts = await results(stack.service);
        return Object.values(counts).reduce((sum, count) => sum + count, 0) === completions || JSON.stringify(counts);
      },
      "every publication is judged",
      60_000,
    );
    const counts = await results(stack.service);
    expect([counts["lost"] ?? 0, counts["kept"] ?? 0, counts["failed"] ?? 0]).toEqual([0, 0, 0]);
    expect(counts["same"] ?? 0).toBeGreaterThan(completions / 2);
  },
);
