import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { type FaultRun, faultTest } from "../support/fault-run.js";
import { QUIET } from "../support/history.js";
import { BIG_AUTHOR, SMALL_AUTHOR } from "../support/history-cast.js";
import { deleted, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { heldBy, homeKey } from "../support/timeline-keys.js";

const UNFOLLOWERS = ["ada", "ben", "cleo"];

function follow({ stack: { world } }: FaultRun, follower: string, author: string): TimelineEvent {
  return followed(follower, author, world.follow(follower, author));
}

function unfollow({ stack: { world } }: FaultRun, follower: string, author: string): TimelineEvent {
  return unfollowed(follower, author, world.unfollow(follower, author));
}

function remove({ stack: { world } }: FaultRun, drop: string, author: string): TimelineEvent {
  world.remove(drop);
  return deleted(drop, author);
}

faultTest("the follower cache of a second process is stale", { ...QUIET, seed: 61, workers: 2 }, async (run) => {
  for (const who of UNFOLLOWERS) {
    await run.publish(follow(run, who, SMALL_AUTHOR));
    // Both processes have read the followers.
    await run.publish(...Array.from({ length: 12 }, () => run.history.post(SMALL_AUTHOR)));
    await run.done();
    const left = unfollow(run, who, SMALL_AUTHOR);
    await run.publish(left, ...Array.from({ length: 12 }, () => run.history.post(SMALL_AUTHOR)));
    await run.checkConservation();
  }
  run.faultEnded();
  return undefined;
});

const QUICK = { ...QUIET, seed: 62, workers: 2, shuffled: true };
faultTest("follow, unfollow, follow, and so on, published at once and in any order", QUICK, async (run) => {
  for (let round = 0; round < 4; round += 1) {
    const events: TimelineEvent[] = [];
    for (const who of ["ada", "ben"]) {
      for (const author of [BIG_AUTHOR, SMALL_AUTHOR]) {
        events.push(follow(run, who, author), run.history.post(author));
        events.push(unfollow(run, who, author), run.history.post(author));
        if (round % 2 === 0) events.push(follow(run, who, author));
      }
    }
    await run.publish(...events);
    await run.checkConservation();
    if (round % 2 === 0) {
      const ended = ["ada", "ben"].flatMap((who) =>
        [BIG_AUTHOR, SMALL_AUTHOR].map((author) => unfollow(run, who, author)),
      );
      await run.publish(...ended);
    }
  }
  run.faultEnded();
  return undefined;
});

/** The upstreams apply deletion and unfollow at once. Their events are published one after the other, and together. */
async function deletionsBesideUnfollows(run: FaultRun): Promise<void> {
  const drops = ["first", "second", "third"];
  const posts = drops.map((drop_id) => run.history.post(SMALL_AUTHOR, { drop_id, visibility: "public" }));
  await run.publish(...UNFOLLOWERS.map((who) => follow(run, who, SMALL_AUTHOR)), ...posts);
  await run.done();
  const [first, ada] = [remove(run, "first", SMALL_AUTHOR), unfollow(run, "ada", SMALL_AUTHOR)];
  await run.publish(ada);
  await run.done();
  await run.publish(first);
  await run.done();
  const [second, ben] = [remove(run, "second", SMALL_AUTHOR), unfollow(run, "ben", SMALL_AUTHOR)];
  await run.publish(second);
  await run.done();
  await run.publish(ben);
  const [third, cleo] = [remove(run, "third", SMALL_AUTHOR), unfollow(run, "cleo", SMALL_AUTHOR)];
  await run.publish(third, cleo);
  await run.done();
}

faultTest("a deletion beside an unfollow", { ...QUIET, seed: 63, workers: 2 }, async (run) => {
  await deletionsBesideUnfollows(run);
  run.faultEnded();
  // Nobody has read yet: tombstones expire, and a read only removes drops of its page.
  const left = await heldBy(run.stack.redis, UNFOLLOWERS.map(homeKey));
  expect([...left.values()].flatMap(({ entries }) => entries)).toEqual([]);
  return undefined;
});

const CHUNKS = { ...QUIET, seed: 64, failpoints: "handled=kill@unlisted", deathsMax: 2 };
faultTest("chunks planned twice, with other followers the second time", CHUNKS, async (run) => {
  await run.publish(follow(run, "ada", BIG_AUTHOR), follow(run, "cleo", BIG_AUTHOR));
  await run.done();
  const post = run.history.post(BIG_AUTHOR, { drop_id: "planned-twice", visibility: "unlisted" });
  await run.publish(post);
  for (const [number, [who, whom]] of [
    ["ben", "ada"],
    ["dan@example.org", "cleo"],
  ].entries()) {
    await eventually(() => run.supervisor.deaths > number, "the planner has died with its jobs stored");
    await run.publish(follow(run, who as string, BIG_AUTHOR), unfollow(run, whom as string, BIG_AUTHOR));
  }
  run.faultEnded();
  return () => expect(run.supervisor.deaths).toBe(2);
});
