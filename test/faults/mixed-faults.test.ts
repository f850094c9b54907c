import { setTimeout as delay } from "node:timers/promises";
import { expect } from "@jest/globals";
import { dropOf } from "../support/conservation.js";
import { type FaultRun, faultTest } from "../support/fault-run.js";
import { QUIET } from "../support/history.js";
import { BIG_AUTHOR, SMALL_AUTHOR } from "../support/history-cast.js";
import { below, oneOf } from "../support/random.js";

const KILLER = "killer-drop";
const THOUSAND = {
  ...{ ...QUIET, seed: 101 },
  failpoints: `handle=kill@${KILLER}`,
  env: { TIMELINE_MAX_ENTRIES: "5000" },
};

faultTest("invalid messages and a crash loop among a thousand valid events", THOUSAND, async (run) => {
  const posts = (count: number) =>
    Array.from({ length: count }, (_, number) =>
      run.history.post(number % 4 === 0 ? BIG_AUTHOR : SMALL_AUTHOR, { visibility: "followers" }),
    );
  for (let round = 0; round < 5; round += 1) {
    await run.publish(...posts(100));
    await run.publishInvalid(`{"drop_id": "invalid-${round}"`);
    await run.publishInvalid(`["invalid", ${round}]`);
    if (round === 2) await run.publish(run.history.post(SMALL_AUTHOR, { drop_id: KILLER, visibility: "followers" }));
    await run.publish(...posts(100));
  }
  await run.checkConservation();
  await run.done();
  const [original] = (await run.stack.streams.all("DROPS")).filter((message) => dropOf(message) === KILLER);
  run.invalidMessages.push(String(original?.body));
  return () => expect(run.supervisor.deaths).toBe(5);
});

faultTest(
  "everything twice and in any order, and again from the log",
  { seed: 102, workers: 2, shuffled: true },
  twice,
);

async function twice(run: FaultRun): Promise<undefined> {
  for (let round = 0; round < 4; round += 1) await run.publishSteps(60);
  await run.done();
  await run.checkConservation();
  const log = await run.stack.streams.all("DROPS");
  const jetstream = run.stack.streams.connection.jetstream();
  for (const { subject, body } of log.toReversed()) await jetstream.publish(subject, body);
  run.faultEnded();
  return undefined;
}

/** Each fault of the workers or their links is over when its promise resolves. */
const FAULTS: Readonly<Record<string, (run: FaultRun, ms: number) => Promise<unknown>>> = {
  kill: async ({ supervisor, random }) =>
    supervisor.running.length > 0 && oneOf(random, supervisor.running).signal("SIGKILL"),
  stop: async ({ supervisor, random }, ms) => {
    const [some] = [oneOf(random, supervisor.running)];
    some.signal("SIGSTOP");
    await delay(ms);
    some.signal("SIGCONT");
  },
  cut: async ({ redisLink, natsLink }) => [redisLink.cut(), natsLink.cut()],
  acks: ({ natsLink }, ms) => during(ms, natsLink, "drop", "toServer"),
  answers: ({ natsLink }, ms) => during(ms, natsLink, "drop", "toClient"),
  replies: ({ redisLink }, ms) => during(ms, redisLink, "drop", "toClient"),
  writes: ({ redisLink }, ms) => during(ms, redisLink, "pause", "toServer"),
  nats: async (run, ms) => {
    const back = await run.killNats();
    await delay(ms);
    await back();
  },
};

async function during(ms: number, ...[link, flow, direction]: During): Promise<void> {
  link.set(flow, direction);
  await delay(ms);
  link.set("pass");
}

type During = readonly [FaultRun["redisLink"], "drop" | "pause", "toServer" | "toClient"];

for (const seed of [111, 113]) {
  faultTest(`a random mix of faults, ${seed}`, { seed, workers: 3, zombies: true }, async (run) => {
    const order: string[] = [];
    for (let round = 0; round < 6; round += 1) {
      const name = oneOf(run.random, Object.keys(FAULTS));
      order.push(name);
      const fault = FAULTS[name]?.(run, 500 + below(run.random, 2_000));
      await run.publishSteps(30);
      await fault;
    }
    run.faultEnded();
    await run.publishSteps(20);
    await run.checkConservation();
    return () => expect(order).toHaveLength(6);
  });
}
