import { setTimeout as delay } from "node:timers/promises";
import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { type OwnRun, type OwnScenario, ownMutantTest, ownTest } from "../support/own-run.js";
import { oneOf } from "../support/random.js";

/** Things that people do in a round. */
const ACTS = 60;
const AWAY_MS = process.env["FAULTS_LONG"] === "1" ? 60_000 : 4_000;

/** Two rounds, or as many as it takes until a process has died. */
const untilOneDied: OwnScenario = async (run) => {
  for (let round = 0; round < 2 || (round < 6 && run.deaths === 0); round++) {
    await run.history.act(ACTS);
    await run.resume();
    await eventually(() => run.deaths > 0, "a process has died").catch(() => undefined);
  }
  return () => expect(run.deaths).toBeGreaterThan(0);
};

/** The steps at which a process of notifications dies, in a third of the passes. */
const STEPS = ["handle", "notification-written", "notification-deferred", "notification-published", "handled", "acked"];

// Invariant 8.
for (const [index, step] of STEPS.entries()) {
  const options = { seed: 131 + index, failpoints: { notifications: `${step}=kill%0.3` }, deathsMax: 3 };
  ownTest(`notifications: a process killed at \`${step}\``, options, untilOneDied);
}

const FANOUT = ["handle", "write", "written", "checked", "notified", "handled", "acked"];
const KILLED = { fanout: FANOUT.map((step) => `${step}=kill%0.03`).join(",") };

// Invariants 2, 7 and 8.
ownTest(
  "lists and streams of local: fan-out killed at any step",
  { seed: 141, failpoints: KILLED, deathsMax: 6 },
  untilOneDied,
);

/** Deletions come before what they delete, likes after those that took them back. */
const again: OwnScenario = async (run) => {
  await run.history.act(2 * ACTS);
  await run.settled();
  await run.again("DROPS", "ACTIVITY");
  await run.history.act(ACTS);
  await run.resume();
  return undefined;
};

// Invariants 1 and 3.
ownTest("lists, notifications and streams: everything again, in the opposite order", { seed: 142 }, again);

/** People go on while something is away, and clients resume. */
async function duringFault(run: OwnRun, begin: () => Promise<() => unknown>): Promise<undefined> {
  await run.history.act(ACTS);
  const end = await begin();
  const acting = run.history.act(ACTS);
  await delay(AWAY_MS);
  await end();
  await acting;
  await run.resume();
  await run.history.act(ACTS);
  return undefined;
}

// Invariant 12.
for (const [index, name] of (["redisServer", "natsServer"] as const).entries())
  ownTest(`lists, notifications and streams: ${name} killed, and back with its data`, { seed: 143 + index }, (run) =>
    duringFault(run, () => run.kill(name)),
  );

ownTest("lists, notifications and streams: the database killed, and back", { seed: 145 }, (run) =>
  duringFault(run, async () => {
    await run.postgres.kill();
    return () => run.postgres.start();
  }),
);

for (const [index, direction] of (["toServer", "toClient"] as const).entries())
  ownTest(
    `lists, notifications and streams: ${direction === "toServer" ? "acks and PubAcks" : "what NATS answers"} lost`,
    { seed: 146 + index },
    (run) =>
      duringFault(run, async () => {
        run.natsLink.set("drop", direction);
        return () => run.natsLink.set("pass");
      }),
  );

// Invariants 5 and 7.
ownTest("lists and streams: api and gateway killed, and clients resume", { seed: 148 }, async (run) => {
  for (let round = 0; round < 3; round++) {
    const acting = run.history.act(ACTS);
    run.front.signal("SIGKILL");
    await acting;
    await run.resume();
  }
  const reasons = () => run.listening.flatMap(({ resets }) => resets.map(({ data }) => data["reason"]));
  // On a busy machine fan-out may not learn in time whom a listener hides.
  return () => expect([run.deaths, reasons().filter((reason) => reason !== "relations_unknown")]).toEqual([3, []]);
});

/** Each of these is over when its promise resolves. */
const FAULTS: Readonly<Record<string, (run: OwnRun) => Promise<unknown>>> = {
  kill: async ({ front, workers, tellers }) => {
    for (const supervisor of [front, workers, tellers]) supervisor.signal("SIGKILL");
  },
  stop: async ({ front, workers, tellers }) => {
    for (const supervisor of [front, workers, tellers]) supervisor.signal("SIGSTOP");
    await delay(AWAY_MS);
    for (const supervisor of [front, workers, tellers]) supervisor.signal("SIGCONT");
  },
  acks: ({ natsLink }) => during(natsLink, "toServer"),
  answers: ({ natsLink }) => during(natsLink, "toClient"),
  redis: (run) => away(run, "redisServer"),
  nats: (run) => away(run, "natsServer"),
  database: async ({ postgres }) => {
    await postgres.kill();
    await delay(AWAY_MS / 2);
    await postgres.start();
  },
};

async function during(link: OwnRun["natsLink"], direction: "toServer" | "toClient"): Promise<void> {
  link.set("drop", direction);
  await delay(AWAY_MS / 2);
  link.set("pass");
}

async function away(run: OwnRun, name: "redisServer" | "natsServer"): Promise<void> {
  const back = await run.kill(name);
  await delay(AWAY_MS / 2);
  await back();
}

// Invariants 1 to 3, 7, 8 and 12.
for (const seed of [161, 162])
  ownTest("lists, notifications and streams: a random mix of faults", { seed }, async (run) => {
    for (let round = 0; round < 6; round++) {
      const fault = FAULTS[oneOf(run.random, Object.keys(FAULTS))]?.(run);
      await run.history.act(ACTS / 2);
      await fault;
      await run.resume();
      if (round % 2 === 0) await run.again("ACTIVITY");
    }
    return undefined;
  });

ownMutantTest("tombstone-check", { seed: 151 }, again);
ownMutantTest(
  "ack-last",
  { seed: 152, failpoints: { notifications: "notification-written=throw%0.5" } },
  async (run) => {
    await run.history.act(2 * ACTS);
    return undefined;
  },
);
