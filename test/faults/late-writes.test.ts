import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { type FaultRun, faultTest } from "../support/fault-run.js";
import { QUIET } from "../support/history.js";
import { READERS, SMALL_AUTHOR } from "../support/history-cast.js";
import type { Service } from "../support/service.js";
import { deleted } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const ZOMBIES = { ...QUIET, zombies: true };
const READER = READERS[3] as string;

async function isHeld({ stack }: FaultRun, drop: string): Promise<boolean> {
  return (await held(stack.redis, homeKey(READER))).entries.some(([id]) => id === drop);
}

/** Waits until another process has written the drop, deletes it, and waits until it is gone. */
async function writtenAndDeleted(run: FaultRun, drop: string): Promise<void> {
  await eventually(() => isHeld(run, drop), "another process has written it", 30_000);
  run.stack.world.remove(drop);
  await run.publish(deleted(drop, SMALL_AUTHOR));
  await eventually(async () => !(await isHeld(run, drop)), "it is deleted");
}

async function zombie(run: FaultRun, stop: (first: Service) => Promise<() => void>): Promise<void> {
  const { upstreams } = run.stack;
  const [first] = run.supervisor.running;
  const heal = upstreams.inject({ method: "GetFollowersList", user: SMALL_AUTHOR, delayMs: 700 });
  const drops = ["undead-1", "undead-2", "undead-3"];
  await run.publish(...drops.map((drop_id) => run.history.post(SMALL_AUTHOR, { drop_id, visibility: "public" })));
  await eventually(() => upstreams.held() > 0, "a worker has them in hand");
  heal();
  const go = await stop(first as Service);
  await run.startWriter();
  for (const drop of drops) await writtenAndDeleted(run, drop);
  go();
  run.faultEnded();
}

faultTest("a worker stopped with drops in hand goes on after their deletion", { ...ZOMBIES, seed: 81 }, async (run) => {
  await zombie(run, async (first) => {
    first.signal("SIGSTOP");
    return () => first.signal("SIGCONT");
  });
  await run.publishSteps(20);
  return undefined;
});

const LATE = { ...ZOMBIES, seed: 82 };
faultTest("writes held back on their way to Redis arrive after the deletion", LATE, async (run) => {
  const { redisLink } = run;
  const unharmed = { roles: "fanout", env: {} };
  const drops = ["late-1", "late-2", "late-3"];
  const { upstreams } = run.stack;
  const heal = upstreams.inject({ method: "GetFollowersList", user: SMALL_AUTHOR, delayMs: 500 });
  await run.publish(...drops.map((drop_id) => run.history.post(SMALL_AUTHOR, { drop_id, visibility: "public" })));
  await eventually(() => upstreams.held() > 0, "a worker has them in hand");
  heal();
  redisLink.set("pause", "toServer");
  await eventually(() => upstreams.held() === 0, "it writes");
  await eventually(() => redisLink.heldBack("toServer") > 0, "its writes are on their way");
  const [first] = run.supervisor.running;
  first?.signal("SIGSTOP");
  await run.supervisor.start(unharmed);
  for (const drop of drops) await writtenAndDeleted(run, drop);
  redisLink.set("pass");
  first?.signal("SIGCONT");
  run.faultEnded();
  return () => expect(run.supervisor.deaths).toBe(0);
});
