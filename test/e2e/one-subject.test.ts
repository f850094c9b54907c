import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, followed, type TimelineEvent } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
/** Far shorter than what waits for the upstream, and than it took when that kept all slots. */
const PROMPTLY_MS = 5_000;
/** On a busy machine it may take so many times as long as where nothing waits. */
const BUSY = 20;
/** Calls that fail take turns, whose number a busy machine stretches. That none of their drops has ended says more than a time. */
const FAILING_MS = 30_000;
const names = (prefix: string, count: number): string[] => Array.from({ length: count }, (_, at) => `${prefix}-${at}`);

/** Posts of authors whom the reader follows; each author has `each` drops. */
function posts({ world }: Stack, reader: string, authors: readonly string[], each = 1): TimelineEvent[] {
  return authors.flatMap((user_id) => {
    world.follow(reader, user_id);
    return Array.from({ length: each }, (_, at) => {
      const drop = { drop_id: `${user_id}-${at}`, user_id, visibility: "followers" as const, created_at: START + at };
      world.post(drop);
      return created(drop);
    });
  });
}

const landed = (stack: Stack, reader: string): Promise<number> => stack.redis.zcard(`timeline:home:${reader}`);

/** Drops of authors whose list is kept, and of authors for whom nobody has asked yet. */
async function expectOthersPromptly(stack: Stack, { known, promptlyMs }: Known): Promise<void> {
  const { world } = stack;
  const again = known.map((user_id) => {
    const drop = { drop_id: `${user_id}-again`, user_id, visibility: "followers" as const, created_at: START + 1 };
    world.post(drop);
    return created(drop);
  });
  const before = await landed(stack, "bob");
  const fresh = posts(stack, "bob", names("fresh", 9));
  await stack.publish(...again, ...fresh);
  const count = before + again.length + fresh.length;
  await eventually(async () => (await landed(stack, "bob")) === count, "drops of other authors land", promptlyMs);
}

interface Known {
  readonly known: readonly string[];
  readonly promptlyMs: number;
}

/** Their drops land while nothing waits, which says how fast this machine is. */
async function knownAuthors(stack: Stack): Promise<Known> {
  const known = names("known", 9);
  const started = performance.now();
  await stack.publish(...posts(stack, "bob", known));
  await eventually(async () => (await landed(stack, "bob")) === known.length, "drops of known authors land");
  const promptlyMs = Math.max(PROMPTLY_MS, BUSY * (performance.now() - started));
  await stack.streams.settled(known.length);
  return { known, promptlyMs };
}

const FAULTS = [
  { authors: 12, each: 40, fault: { code: status.INTERNAL }, what: "INTERNAL", slow: false },
  { authors: 36, each: 40, fault: { code: status.INTERNAL }, what: "INTERNAL", slow: true },
  { authors: 1, each: 80, fault: { code: status.UNAVAILABLE }, what: "UNAVAILABLE", slow: false },
  { authors: 36, each: 40, fault: { code: status.UNAVAILABLE }, what: "UNAVAILABLE", slow: true },
  { authors: 12, each: 40, fault: { delayMs: 60_000 }, what: "hanging", slow: true },
];

for (const { authors, each, fault, what, slow } of FAULTS) {
  // Invariant 8.
  testWithStack(
    `drops of others land promptly while the lists of ${authors} authors with ${each} drops each are ${what}`,
    { slow, timeoutMs: 120_000, env: { TIMELINE_MAX_ENTRIES: "2000" } },
    async (stack) => {
      const { streams, upstreams } = stack;
      const { known, promptlyMs } = await knownAuthors(stack);
      const failing = names("failing", authors);
      const heals = failing.map((user) => upstreams.inject({ method: "GetFollowersList", user, ...fault }));
      const waiting = posts(stack, "carol", failing, each);
      await stack.publish(...waiting);
      await eventually(
        async () => (await streams.count("DROPS")) === known.length + waiting.length,
        "all are admitted",
      );
      await expectOthersPromptly(stack, { known, promptlyMs: what === "hanging" ? promptlyMs : FAILING_MS });
      expect([await landed(stack, "carol"), await streams.all("DLQ")]).toEqual([0, []]);
      for (const heal of heals) heal();
      await streams.settled(2 * known.length + 9 + waiting.length, 90_000);
      // Each of them landed or is a dead letter.
      const letters = await streams.all("DLQ");
      for (const { subject } of letters) expect(subject).toBe("dlq.exhausted.drop_created");
      expect((await landed(stack, "carol")) + letters.length).toBe(waiting.length);
      if (what === "UNAVAILABLE") expect(letters).toHaveLength(0);
    },
  );
}

// Invariant 8.
testWithStack(
  "after a kill the drops of an author whose list hangs hold up nobody else",
  { timeoutMs: 60_000, env: { TIMELINE_ACK_WAIT_MS: "3500" } },
  async (stack) => {
    const { service, streams, upstreams } = stack;
    const { known, promptlyMs } = await knownAuthors(stack);
    upstreams.inject({ method: "GetFollowersList", user: "hanging", delayMs: 60_000 });
    const waiting = posts(stack, "carol", ["hanging"], 40);
    await stack.publish(...waiting);
    const count = known.length + waiting.length;
    await eventually(async () => (await streams.count("DROPS")) === count && upstreams.held() > 0, "it hangs");
    service.signal("SIGKILL");
    await service.exited;
    await eventually(() => upstreams.held() === 0, "its calls have ended");
    await stack.start();
    await eventually(() => upstreams.held() > 0, "it hangs again");
    const fresh = posts(stack, "bob", names("fresh", 9));
    await stack.publish(...fresh);
    const all = known.length + fresh.length;
    await eventually(async () => (await landed(stack, "bob")) === all, "drops of other authors land", promptlyMs);
  },
);

// Invariant 8.
testWithStack(
  "drops of others land promptly while the drops of one author, and the followings of one recipient, hang",
  { slow: true, timeoutMs: 60_000 },
  async (stack) => {
    const { upstreams, world } = stack;
    const { known, promptlyMs } = await knownAuthors(stack);
    const followers = names("follower", 150);
    // A home that was never read has nothing to be filled.
    await Promise.all(followers.map((user) => stack.reads.home(user)));
    for (const user of followers) world.follow(user, "hanging");
    upstreams.inject({ method: "GetDropsByUserID", user: "hanging", delayMs: 60_000 });
    upstreams.inject({ method: "GetFollowingList", user: "recipient", delayMs: 60_000 });
    const follows = followers.map((user) => followed(user, "hanging", 1));
    const direct = Array.from({ length: 150 }, (_, at) => {
      const drop = { drop_id: `direct-${at}`, user_id: "bot", recipients: ["recipient"], created_at: START + at };
      return created({ ...drop, visibility: "direct" });
    });
    await stack.publish(...direct, ...follows);
    await eventually(() => upstreams.held() >= 2, "they hang");
    const fresh = posts(stack, "bob", names("fresh", 9));
    await stack.publish(...fresh);
    const all = known.length + fresh.length;
    await eventually(async () => (await landed(stack, "bob")) === all, "drops of other authors land", promptlyMs);
  },
);
