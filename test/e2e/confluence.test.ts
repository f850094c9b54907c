import { expect } from "@jest/globals";
import { ACTORS, VISIBILITIES, CHURNERS as WARM } from "../support/history-cast.js";
import { expectedAfter, expectTimelines } from "../support/oracle.js";
import { below, duplicatedAndShuffled, oneOf, type Random, seeded } from "../support/random.js";
import { type Stack, testWithStack } from "../support/stack.js";
import {
  admitted,
  created,
  deleted,
  followed,
  received,
  type TimelineEvent,
  unfollowed,
} from "../support/timeline-events.js";
import { inKey } from "../support/timeline-keys.js";
import type { World } from "../support/world.js";

const START = Date.now() - 86_400_000;
const COLD = ["eve", "fay"];
const PEOPLE = [...WARM, ...COLD];

type Alive = {
  readonly drop_id: string;
  readonly user_id: string;
  readonly remote: boolean;
  readonly visibility: string;
};

/** Changes the world step by step; each step yields the events that tell of it. */
function* historyOf(random: Random, world: World): Generator<TimelineEvent[]> {
  const alive: Alive[] = [];
  for (let step = 0; step < 260; step += 1) {
    const dice = random();
    if (dice < 0.3) yield [changeOfEdge(random, world)];
    else if (dice < 0.42 && alive.length > 0) {
      const [gone] = alive.splice(below(random, alive.length), 1);
      if (gone === undefined) throw new Error("nothing to delete");
      world.remove(gone.drop_id);
      yield [gone.remote || random() < 0.3 ? deleted(gone.drop_id) : deleted(gone.drop_id, gone.user_id)];
    } else yield publication(random, world, step, alive);
  }
}

function changeOfEdge(random: Random, world: World): TimelineEvent {
  const follower = oneOf(random, PEOPLE);
  const author = oneOf(
    random,
    [...PEOPLE, ...ACTORS].filter((person) => person !== follower),
  );
  if (world.follows(follower, author)) return unfollowed(follower, author, world.unfollow(follower, author));
  return followed(follower, author, world.follow(follower, author));
}

function publication(random: Random, world: World, step: number, alive: Alive[]): TimelineEvent[] {
  // Few different times, so that many drops share a millisecond.
  const created_at = START + below(random, 40);
  if (random() < 0.25) {
    const drop = { drop_id: `https://remote.example/notes/${step}`, user_id: oneOf(random, ACTORS), created_at };
    if (random() < 0.3) return [received({ drop_id: drop.drop_id, created_at })];
    const said = { ...drop, ...parentOf(random, alive) };
    world.post({ ...said, remote: true });
    alive.push({ ...drop, remote: true, visibility: "public" });
    return [received(said)];
  }
  const visibility = oneOf(random, VISIBILITIES);
  const recipients = visibility === "direct" ? PEOPLE.filter(() => random() < 0.5) : [];
  const repost = random() < 0.2 ? originalOf(random, alive) : undefined;
  const own = { drop_id: `drop-${step}`, user_id: oneOf(random, PEOPLE), created_at, visibility, recipients };
  const drop = { ...own, ...(repost ?? parentOf(random, alive)) };
  world.post(drop);
  if (repost) return [created(drop)];
  alive.push({ ...own, remote: false });
  if (visibility !== "public" || random() > 0.1) return [created(drop)];
  const echo = received({
    drop_id: drop.drop_id,
    user_id: drop.user_id,
    created_at: created_at + 1 + below(random, 5),
    ...("reply_to" in drop && { reply_to: drop.reply_to, reply_to_author: drop.reply_to_author }),
  });
  return [created(drop), echo];
}

/** Of a third of the drops, which are replies. */
function parentOf(random: Random, alive: readonly Alive[]): { reply_to?: string; reply_to_author?: string } {
  if (alive.length === 0 || random() > 0.35) return {};
  const { drop_id, user_id } = oneOf(random, alive);
  return { reply_to: drop_id, ...(random() < 0.85 && { reply_to_author: user_id }) };
}

/** Of a repost. */
function originalOf(random: Random, alive: readonly Alive[]) {
  const originals = alive.filter(({ visibility }) => ["public", "unlisted"].includes(visibility));
  if (originals.length === 0) return undefined;
  const { drop_id, user_id, visibility } = oneOf(random, originals);
  return {
    repost_of: drop_id,
    repost_author: user_id,
    visibility: visibility as "public" | "unlisted",
    recipients: [],
  };
}

async function expectState(stack: Stack, history: readonly TimelineEvent[]): Promise<void> {
  await stack.streams.settled(admitted(history), 40_000);
  // A home that a follow made incomplete is rebuilt when it is read.
  const expected = expectedAfter(history);
  for (const user of PEOPLE) {
    const page = await stack.reads.home(user, { limit: 100 });
    expect({ user, ids: page.drop_ids, degraded: page.degraded }).toEqual({
      ...{ user, degraded: false },
      ids: expected
        .homePage(user)
        .slice(0, 100)
        .map(({ drop }) => drop),
    });
  }
  await expectTimelines(stack.redis, PEOPLE, history);
  expect(await stack.streams.count("DLQ")).toBe(0);
}

async function warm({ reads }: Stack): Promise<void> {
  for (const user of WARM) expect((await reads.home(user)).degraded).toBe(false);
}

testWithStack("a history published in order, step by step", {}, async (stack) => {
  await warm(stack);
  const history: TimelineEvent[] = [];
  for (const events of historyOf(seeded(1), stack.world)) {
    history.push(...events);
    await stack.publish(...events);
  }
  await expectState(stack, history);
});

for (const seed of [2, 3]) {
  // Invariant 3.
  testWithStack(
    `a history duplicated and shuffled ends in the state of the ordered one (seed ${seed})`,
    {},
    async (stack) => {
      await warm(stack);
      const random = seeded(seed);
      const history = [...historyOf(random, stack.world)].flat();
      await stack.publish(...duplicatedAndShuffled(random, history));
      await expectState(stack, history);
    },
  );
}

// Invariant 3.
testWithStack("the same with two processes at work and homes read meanwhile", {}, async (stack) => {
  await warm(stack);
  await stack.start();
  const random = seeded(4);
  const history = [...historyOf(random, stack.world)].flat();
  const events = duplicatedAndShuffled(random, history);
  while (events.length > 0) {
    await stack.publish(...events.splice(0, 20));
    await stack.reads.home(oneOf(random, PEOPLE));
  }
  await expectState(stack, history);
});

// Invariant 3.
testWithStack("events that were applied, delivered again from the log, change nothing", {}, async (stack) => {
  await warm(stack);
  const history = [...historyOf(seeded(5), stack.world)].flat();
  await stack.publish(...history);
  await expectState(stack, history);
  const log = await stack.streams.all("DROPS");
  const jetstream = stack.streams.connection.jetstream();
  for (const { subject, body } of log.toReversed()) await jetstream.publish(subject, body);
  await stack.streams.settled(2 * log.length, 40_000);
  await expectTimelines(stack.redis, WARM, history);
  expect(await stack.redis.exists(`timeline:home:${inKey("*")}`)).toBe(1);
});
