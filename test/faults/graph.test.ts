import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { type Arena, faultTest } from "../support/fault-run.js";
import { BIG_AUTHOR, SMALL_AUTHOR } from "../support/history.js";
import { deleted, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { heldBy, homeKey } from "../support/timeline-keys.js";

/** Only what these tests tell, and drops beside it. */
const QUIET = { churn: false, deletions: false, remote: false };

const LEAVERS = ["ada", "ben", "cleo"];

function follow({ stack: { world } }: Arena, follower: string, author: string): TimelineEvent {
  return followed(follower, author, world.follow(follower, author));
}

function unfollow({ stack: { world } }: Arena, follower: string, author: string): TimelineEvent {
  return unfollowed(follower, author, world.unfollow(follower, author));
}

function remove({ stack: { world } }: Arena, drop: string, author: string): TimelineEvent {
  world.remove(drop);
  return deleted(drop, author);
}

faultTest("the follower cache of a second process is stale", { ...QUIET, seed: 61, workers: 2 }, async (arena) => {
  for (const who of LEAVERS) {
    await arena.publish(follow(arena, who, SMALL_AUTHOR));
    // Both processes have read the followers.
    await arena.publish(...Array.from({ length: 12 }, () => arena.story.post(SMALL_AUTHOR)));
    await arena.done();
    const left = unfollow(arena, who, SMALL_AUTHOR);
    await arena.publish(left, ...Array.from({ length: 12 }, () => arena.story.post(SMALL_AUTHOR)));
    await arena.checkConservation();
  }
  arena.healed();
  return undefined;
});

const QUICK = { ...QUIET, seed: 62, workers: 2, shuffled: true };
faultTest("follow, unfollow, follow, and so on, told at once and in any order", QUICK, async (arena) => {
  for (let round = 0; round < 4; round += 1) {
    const events: TimelineEvent[] = [];
    for (const who of ["ada", "ben"]) {
      for (const author of [BIG_AUTHOR, SMALL_AUTHOR]) {
        events.push(follow(arena, who, author), arena.story.post(author));
        events.push(unfollow(arena, who, author), arena.story.post(author));
        if (round % 2 === 0) events.push(follow(arena, who, author));
      }
    }
    await arena.publish(...events);
    await arena.checkConservation();
    if (round % 2 === 0) {
      const ended = ["ada", "ben"].flatMap((who) =>
        [BIG_AUTHOR, SMALL_AUTHOR].map((author) => unfollow(arena, who, author)),
      );
      await arena.publish(...ended);
    }
  }
  arena.healed();
  return undefined;
});

/** The upstreams show deletion and unfollow at once; they are told one after the other, and together. */
async function deletionsBesideUnfollows(arena: Arena): Promise<void> {
  const drops = ["first", "second", "third"];
  const posts = drops.map((drop_id) => arena.story.post(SMALL_AUTHOR, { drop_id, visibility: "public" }));
  await arena.publish(...LEAVERS.map((who) => follow(arena, who, SMALL_AUTHOR)), ...posts);
  await arena.done();
  const [first, ada] = [remove(arena, "first", SMALL_AUTHOR), unfollow(arena, "ada", SMALL_AUTHOR)];
  await arena.publish(ada);
  await arena.done();
  await arena.publish(first);
  await arena.done();
  const [second, ben] = [remove(arena, "second", SMALL_AUTHOR), unfollow(arena, "ben", SMALL_AUTHOR)];
  await arena.publish(second);
  await arena.done();
  await arena.publish(ben);
  const [third, cleo] = [remove(arena, "third", SMALL_AUTHOR), unfollow(arena, "cleo", SMALL_AUTHOR)];
  await arena.publish(third, cleo);
  await arena.done();
}

faultTest("a deletion beside an unfollow", { ...QUIET, seed: 63, workers: 2 }, async (arena) => {
  await deletionsBesideUnfollows(arena);
  arena.healed();
  // Before anybody reads: a tombstone is not kept for ever, and a read takes out only what is on its page.
  const left = await heldBy(arena.stack.redis, LEAVERS.map(homeKey));
  expect([...left.values()].flatMap(({ entries }) => entries)).toEqual([]);
  return undefined;
});

const CHUNKS = { ...QUIET, seed: 64, failpoints: "handled=kill@unlisted", deathsMax: 2 };
faultTest("chunks planned twice, with other followers the second time", CHUNKS, async (arena) => {
  await arena.publish(follow(arena, "ada", BIG_AUTHOR), follow(arena, "cleo", BIG_AUTHOR));
  await arena.done();
  const post = arena.story.post(BIG_AUTHOR, { drop_id: "planned-twice", visibility: "unlisted" });
  await arena.publish(post);
  for (const [number, [who, whom]] of [
    ["ben", "ada"],
    ["dan@example.org", "cleo"],
  ].entries()) {
    await eventually(() => arena.supervisor.deaths > number, "the planner has died with its jobs stored");
    await arena.publish(follow(arena, who as string, BIG_AUTHOR), unfollow(arena, whom as string, BIG_AUTHOR));
  }
  arena.healed();
  return () => expect(arena.supervisor.deaths).toBe(2);
});
