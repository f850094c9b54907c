import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { type Arena, faultTest } from "../support/fault-run.js";
import { READERS, SMALL_AUTHOR } from "../support/history.js";
import type { Service } from "../support/service.js";
import { deleted } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const QUIET = { zombies: true, churn: false, deletions: false, remote: false };
const READER = READERS[3] as string;

async function isHeld({ stack }: Arena, drop: string): Promise<boolean> {
  return (await held(stack.redis, homeKey(READER))).entries.some(([id]) => id === drop);
}

/** Somebody else has written the drop; then it is deleted, and gone. */
async function writtenAndDeleted(arena: Arena, drop: string): Promise<void> {
  await eventually(() => isHeld(arena, drop), "another process has written it", 30_000);
  arena.stack.world.remove(drop);
  await arena.publish(deleted(drop, SMALL_AUTHOR));
  await eventually(async () => !(await isHeld(arena, drop)), "it is deleted");
}

async function zombie(arena: Arena, stop: (first: Service) => Promise<() => void>): Promise<void> {
  const { upstreams } = arena.stack;
  const [first] = arena.supervisor.running;
  const heal = upstreams.inject({ method: "GetFollowersList", user: SMALL_AUTHOR, delayMs: 700 });
  const drops = ["undead-1", "undead-2", "undead-3"];
  await arena.publish(...drops.map((drop_id) => arena.story.post(SMALL_AUTHOR, { drop_id, visibility: "public" })));
  await eventually(() => upstreams.held() > 0, "a worker has them in hand");
  heal();
  const go = await stop(first as Service);
  await arena.startWriter();
  for (const drop of drops) await writtenAndDeleted(arena, drop);
  go();
  arena.healed();
}

faultTest("a worker stopped with drops in hand goes on after their deletion", { ...QUIET, seed: 81 }, async (arena) => {
  await zombie(arena, async (first) => {
    first.signal("SIGSTOP");
    return () => first.signal("SIGCONT");
  });
  await arena.publishSteps(20);
  return undefined;
});

const LATE = { ...QUIET, seed: 82 };
faultTest("writes held back on their way to Redis arrive after the deletion", LATE, async (arena) => {
  const { redisLink } = arena;
  const unharmed = { roles: "fanout", env: {} };
  const drops = ["late-1", "late-2", "late-3"];
  const { upstreams } = arena.stack;
  const heal = upstreams.inject({ method: "GetFollowersList", user: SMALL_AUTHOR, delayMs: 500 });
  await arena.publish(...drops.map((drop_id) => arena.story.post(SMALL_AUTHOR, { drop_id, visibility: "public" })));
  await eventually(() => upstreams.held() > 0, "a worker has them in hand");
  heal();
  redisLink.set("pause", "toServer");
  await eventually(() => upstreams.held() === 0, "it writes");
  await eventually(() => redisLink.heldBack("toServer") > 0, "its writes are on their way");
  const [first] = arena.supervisor.running;
  first?.signal("SIGSTOP");
  await arena.supervisor.start(unharmed);
  for (const drop of drops) await writtenAndDeleted(arena, drop);
  redisLink.set("pass");
  first?.signal("SIGCONT");
  arena.healed();
  return () => expect(arena.supervisor.deaths).toBe(0);
});
