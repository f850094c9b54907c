import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { dropOf } from "../support/conservation.js";
import { eventually } from "../support/eventually.js";
import { type Arena, type ArenaOptions, faultTest, mutantTest, type Scenario } from "../support/fault-run.js";
import { BIG_AUTHOR, READERS, SMALL_AUTHOR } from "../support/history.js";
import { deleted } from "../support/timeline-events.js";
import { changeType, held, homeKey } from "../support/timeline-keys.js";
import type { Mutant } from "./mutants/mutants.js";

const QUIET = { churn: false, deletions: false, remote: false };
const READER = READERS[3] as string;

/** Outcomes that a worker has reported. */
async function outcomes({ supervisor }: Arena, outcome: string): Promise<number> {
  const text = await (await fetch(`${supervisor.running[0]?.httpUrl}/metrics`)).text();
  return Number(
    new RegExp(`timeline_deliveries_total\\{[^}]*outcome="${outcome}"[^}]*\\} (\\d+)`).exec(text)?.[1] ?? 0,
  );
}

async function isCompleted({ stack }: Arena, drop: string, event: string): Promise<boolean> {
  const landed = (await stack.streams.all("COMPLETIONS")).map(({ body }) => String(body));
  return landed.some((text) => text.includes(`"${drop}"`) && text.includes(event));
}

/** A direct drop is held up on its way to a reader until its deletion is done. */
async function deletedBeforeItIsWritten(arena: Arena): Promise<undefined> {
  const { upstreams, world } = arena.stack;
  const heal = upstreams.inject({ method: "GetFollowingList", user: READER, delayMs: 2_000 });
  const stated = { drop_id: "late", visibility: "direct", recipients: [READER] } as const;
  await arena.publish(arena.story.post(SMALL_AUTHOR, stated));
  await eventually(() => upstreams.held() > 0, "the drop is held up");
  heal();
  world.remove("late");
  await arena.publish(deleted("late", SMALL_AUTHOR));
  await eventually(() => isCompleted(arena, "late", "drop_deleted"), "the deletion is done");
  expect(upstreams.held()).toBeGreaterThan(0);
  arena.healed();
  return undefined;
}

/** Redis takes no writes for a while: of the replies to a write none is a success, and reads are answered. */
async function noReplyIsSuccess(arena: Arena): Promise<undefined> {
  const { redis } = arena.stack;
  await arena.publish(arena.story.post(SMALL_AUTHOR, { drop_id: "before", visibility: "followers" }));
  await arena.done();
  await redis.config("SET", "maxmemory", "1");
  await arena.publish(arena.story.post(SMALL_AUTHOR, { drop_id: "meanwhile", visibility: "followers" }));
  const noticed = async () =>
    (await outcomes(arena, "waited")) > 0 || (await isCompleted(arena, "meanwhile", "drop_created"));
  await eventually(noticed, "the write has failed, or nobody has noticed");
  await redis.config("SET", "maxmemory", "0");
  arena.healed();
  return undefined;
}

/** All keys of timelines, fences and attempts become those of another type, again and again. */
async function keysOfAnotherType(arena: Arena): Promise<undefined> {
  const { redis, streams } = arena.stack;
  for (let round = 0; round < 5; round++) {
    await arena.publishSteps(20);
    const keys = await redis.keys("timeline:*");
    // Without its record a Redis counts as a new one.
    await changeType(
      redis,
      keys.filter((name) => !name.includes(":continuity:")),
    );
  }
  arena.healed();
  await arena.done();
  expect(await streams.count("DLQ")).toBe(0);
  await arena.readAll();
  return undefined;
}

/** The worker dies while it has one event in hand, and all others done. */
async function killedWithOneInHand(arena: Arena): Promise<undefined> {
  const post = (drop_id: string) => arena.story.post(SMALL_AUTHOR, { drop_id, visibility: "followers" });
  await arena.publish(...Array.from({ length: 20 }, (_, number) => post(`other-${number}`)));
  const others = async () => (await held(arena.stack.redis, homeKey(SMALL_AUTHOR))).entries.length === 20;
  await eventually(others, "the others have landed");
  // Beside others it would hold up its batch.
  await arena.publish(post("victim"));
  const { manager } = arena.stack.streams;
  // A worker that acks too early has to have done so when it dies.
  const unacked = arena.options.mutant === undefined ? 1 : 0;
  const inHand = async () => {
    const { delivered, num_ack_pending } = await manager.consumers.info("DROPS", "planner");
    return delivered.consumer_seq > 20 && num_ack_pending === unacked;
  };
  await eventually(inHand, "it is in hand");
  await arena.checkConservation();
  arena.supervisor.signal("SIGKILL");
  await eventually(() => arena.supervisor.deaths === 1, "the worker has died");
  await arena.publishSteps(10);
  return undefined;
}

/** An event is given up while the DLQ is full; later there is room. */
async function givenUpWithFullDlq(arena: Arena): Promise<undefined> {
  const { streams, upstreams } = arena.stack;
  const heal = upstreams.inject({ method: "GetFollowersList", user: SMALL_AUTHOR, code: status.INTERNAL });
  const { config } = await streams.manager.streams.info("DLQ");
  await streams.manager.streams.update("DLQ", { max_bytes: 1 });
  await arena.publish(arena.story.post(SMALL_AUTHOR, { drop_id: "given-up", visibility: "followers" }));
  const settled = () =>
    streams.settledWith(1, 1).then(
      () => true,
      () => false,
    );
  await eventually(
    async () => (await outcomes(arena, "dead-letter-refused")) > 0 || (await settled()),
    "it is given up",
  );
  await arena.checkConservation();
  await streams.manager.streams.update("DLQ", { max_bytes: config.max_bytes });
  arena.healed();
  const [original] = (await streams.all("DROPS")).filter((message) => dropOf(message) === "given-up");
  arena.poison.push(String(original?.body));
  await arena.done();
  heal();
  return undefined;
}

/** UserService is unavailable for longer than the two attempts that an event has. */
async function userServiceAway(arena: Arena): Promise<undefined> {
  const { upstreams, streams } = arena.stack;
  await arena.publishSteps(20);
  const heal = upstreams.inject({ method: "GetFollowersList", code: status.UNAVAILABLE });
  for (const author of [BIG_AUTHOR, SMALL_AUTHOR]) {
    const before = upstreams.calls("GetFollowersList", author);
    await arena.publish(arena.story.post(author, { visibility: "followers" }));
    const asked = (): number => upstreams.calls("GetFollowersList", author) - before;
    const givenUp = async (): Promise<boolean> => (await streams.count("DLQ")) > 0;
    await eventually(async () => asked() > 4 || (await givenUp()), `UserService is asked more often about ${author}`);
  }
  await arena.publishSteps(40);
  heal();
  arena.healed();
  return undefined;
}

const SCENARIOS: readonly (readonly [Mutant, string, ArenaOptions, Scenario])[] = [
  ["tombstone-check", "a drop deleted before it is written", { ...QUIET, seed: 71 }, deletedBeforeItIsWritten],
  ["write-replies", "Redis takes no writes for a while", { ...QUIET, ...attempts(50, 72) }, noReplyIsSuccess],
  [
    "ack-last",
    "a worker killed with one event in hand",
    { ...QUIET, seed: 73, failpoints: "write=hang@victim", deathsMax: 1 },
    killedWithOneInHand,
  ],
  ["dlq-ack", "the DLQ full while an event is given up", { ...QUIET, ...attempts(2, 74) }, givenUpWithFullDlq],
  ["refund", "UserService away", attempts(2, 75), userServiceAway],
];

for (const [mutant, name, options, scenario] of SCENARIOS) {
  faultTest(name, options, scenario);
  mutantTest(mutant, options, scenario);
}

faultTest("keys of another type, again and again", { seed: 76 }, keysOfAnotherType);

function attempts(max: number, seed: number): ArenaOptions {
  return { seed, env: { TIMELINE_FANOUT_MAX_ATTEMPTS: String(max) } };
}
