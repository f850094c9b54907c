import { setTimeout as delay } from "node:timers/promises";
import { expect } from "@jest/globals";
import { dropOf } from "../support/conservation.js";
import { type Arena, faultTest } from "../support/fault-run.js";
import { BIG_AUTHOR, SMALL_AUTHOR } from "../support/history.js";
import { below, oneOf } from "../support/random.js";

const KILLER = "killer-drop";
const THOUSAND = {
  ...{ seed: 101, churn: false, deletions: false, remote: false },
  failpoints: `handle=kill@${KILLER}`,
  env: { TIMELINE_MAX_ENTRIES: "5000" },
};

faultTest("poison and a crash loop among a thousand good events", THOUSAND, async (arena) => {
  const posts = (count: number) =>
    Array.from({ length: count }, (_, number) =>
      arena.story.post(number % 4 === 0 ? BIG_AUTHOR : SMALL_AUTHOR, { visibility: "followers" }),
    );
  for (let round = 0; round < 5; round += 1) {
    await arena.publish(...posts(100));
    await arena.publishInvalid(`{"drop_id": "poison-${round}"`);
    await arena.publishInvalid(`["poison", ${round}]`);
    if (round === 2) await arena.publish(arena.story.post(SMALL_AUTHOR, { drop_id: KILLER, visibility: "followers" }));
    await arena.publish(...posts(100));
  }
  await arena.checkConservation();
  await arena.done();
  const [original] = (await arena.stack.streams.all("DROPS")).filter((message) => dropOf(message) === KILLER);
  arena.poison.push(String(original?.body));
  return () => expect(arena.supervisor.deaths).toBe(5);
});

faultTest(
  "everything twice and in any order, and again from the log",
  { seed: 102, workers: 2, shuffled: true },
  twice,
);

async function twice(arena: Arena): Promise<undefined> {
  for (let round = 0; round < 4; round += 1) await arena.publishSteps(60);
  await arena.done();
  await arena.checkConservation();
  const log = await arena.stack.streams.all("DROPS");
  const jetstream = arena.stack.streams.connection.jetstream();
  for (const { subject, body } of log.toReversed()) await jetstream.publish(subject, body);
  arena.healed();
  return undefined;
}

/** Faults of the workers and their links; each is over when it resolves. */
const FAULTS: Readonly<Record<string, (arena: Arena, ms: number) => Promise<unknown>>> = {
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
  nats: async (arena, ms) => {
    const back = await arena.killNats();
    await delay(ms);
    await back();
  },
};

async function during(ms: number, ...[link, flow, direction]: During): Promise<void> {
  link.set(flow, direction);
  await delay(ms);
  link.set("pass");
}

type During = readonly [Arena["redisLink"], "drop" | "pause", "toServer" | "toClient"];

for (const seed of [111, 113]) {
  faultTest(`a random mix of faults, ${seed}`, { seed, workers: 3, zombies: true }, async (arena) => {
    const order: string[] = [];
    for (let round = 0; round < 6; round += 1) {
      const name = oneOf(arena.random, Object.keys(FAULTS));
      order.push(name);
      const fault = FAULTS[name]?.(arena, 500 + below(arena.random, 2_000));
      await arena.publishSteps(30);
      await fault;
    }
    arena.healed();
    await arena.publishSteps(20);
    await arena.checkConservation();
    return () => expect(order).toHaveLength(6);
  });
}
