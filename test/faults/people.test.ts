import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { CLEAN, type FaultRun, faultTest } from "../support/fault-run.js";
import { BIG_AUTHOR, READERS, SMALL_AUTHOR, SUSPECT } from "../support/history-cast.js";
import { standing } from "../support/timeline-events.js";
import type { StandingName } from "../support/world-standings.js";

/** Both readers listen, and follow the authors. */
const LISTENER = READERS[0] as string;
/** Streams follow a standing within this time. */
const PATIENCE_MS = 5_000;

async function judge(run: FaultRun, name: StandingName, users = [SMALL_AUTHOR, SUSPECT]): Promise<void> {
  for (const user_id of users)
    await run.publish(standing({ user_id }, name, { version: run.stack.world.standings.set({ user_id }, name) }));
}

/** Publishes drops by and about a suspended author, and one that the stream must send after them; returns the others that it sent. */
async function toldOf(run: FaultRun, round: number): Promise<string[]> {
  const post = (name: string, author: string, more = {}) =>
    run.history.post(author, { drop_id: `${name}-${round}`, visibility: "public", recipients: [], ...more });
  const about = { repost: { repost_of: `own-${round}`, repost_author: SMALL_AUTHOR } };
  await run.publish(post("own", SMALL_AUTHOR), post("repost", BIG_AUTHOR, about.repost), post("told", BIG_AUTHOR));
  const stream = run.eventStreams.get(LISTENER);
  await eventually(() => stream?.drops().includes(`told-${round}`) === true, "the stream sends what it may");
  await run.done();
  return stream?.drops().filter((drop) => [`own-${round}`, `repost-${round}`].includes(drop)) ?? [];
}

const OPTIONS = { seed: 121, workers: 2, failpoints: "written=kill%0.04", deathsMax: 3 };

faultTest("authors suspended and lifted while workers are killed", OPTIONS, async (run) => {
  await run.publishSteps(60);
  await judge(run, "suspended");
  await run.publishSteps(40);
  await run.settled();
  expect(await run.findings()).toEqual(CLEAN);
  let round = 0;
  const isSilent = async () => (await toldOf(run, round++)).join() || true;
  await eventually(isSilent, "streams leave out the drops of the suspended and their reposts", PATIENCE_MS);
  await run.publishSteps(40);
  // While somebody else is suspended.
  await judge(run, "suspended", [SUSPECT]);
  await judge(run, "limited", [SMALL_AUTHOR]);
  await run.settled();
  expect(await run.findings()).toEqual(CLEAN);
  await judge(run, "active");
  await run.publishSteps(40);
  run.faultEnded();
  return undefined;
});
