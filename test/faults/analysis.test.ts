import { setTimeout as delay } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { KNOWN, type Saga, type SagaScenario, sagaMutantTest, sagaTest } from "../support/analysis-run.js";
import { eventually } from "../support/eventually.js";

/** An outage lasts so long; its length is what the tests are about. */
const AWAY_MS = process.env["FAULTS_LONG"] === "1" ? 60_000 : 4_000;

/** Asks for analyses before the fault, while it lasts, and after it. */
async function duringFault(saga: Saga, begin: () => unknown, end: () => unknown): Promise<void> {
  await saga.ask(8);
  await begin();
  const asked = saga.ask(8);
  await delay(AWAY_MS);
  await end();
  await asked;
  await saga.ask(8);
}

const noAttemptIsSpent = (saga: Saga) => async () => expect(await saga.attemptsSpent()).toBe(0);

/** The steps at which a worker dies, in half of the passes. */
const STEPS = [
  "handle",
  "analysed",
  "analysis-stored",
  "analysis-cached",
  "analysis-published",
  "analysis-failed",
  "handled",
  "acked",
  "rewarded",
  "reward-published",
];

/** Two rounds, or as many as it takes until one has died. */
const untilOneDied: SagaScenario = async (saga) => {
  for (let round = 0; round < 2 || (round < 6 && saga.supervisor.deaths === 0); round += 1) {
    await saga.ask(12);
    await eventually(() => saga.supervisor.deaths > 0, "a worker has died").catch(() => undefined);
  }
  return () => expect(saga.supervisor.deaths).toBeGreaterThan(0);
};

for (const [index, point] of STEPS.entries()) {
  const options = { seed: index + 1, failpoints: `${point}=kill%0.5`, deathsMax: 2 };
  sagaTest(`a worker killed at \`${point}\``, options, untilOneDied);
}

// Invariant 12.
sagaTest(
  "requests and completions that come twice, and keys used at once",
  { seed: 21, doubled: true },
  async (saga) => {
    saga.supervisor.signal("SIGSTOP");
    await saga.ask(16);
    expect(await saga.again("TIMELINE", "events.timeline.requested")).toBe(16);
    saga.supervisor.signal("SIGCONT");
    await saga.ask(8);
    await saga.settled();
    expect(await saga.again("TIMELINE_EVENTS", "events.timeline.completed")).toBeGreaterThan(0);
    return undefined;
  },
);

for (const [index, direction] of (["toServer", "toClient"] as const).entries()) {
  const what = direction === "toServer" ? "acks and PubAcks" : "what NATS answers";
  sagaTest(`${what} are lost`, { seed: 22 + index }, async (saga) => {
    const { natsLink } = saga;
    await duringFault(
      saga,
      () => natsLink.set("drop", direction),
      () => natsLink.set("pass"),
    );
    return () => expect(natsLink.swallowed(direction)).toBeGreaterThan(0);
  });
}

sagaTest("the posts service away, and the AT Protocol unreachable", { seed: 31 }, async (saga) => {
  const { upstreams } = saga.stack;
  let back: (() => unknown)[] = [];
  await duringFault(
    saga,
    async () => {
      back = [upstreams.inject({ code: status.UNAVAILABLE }), await saga.stopView()];
    },
    () => Promise.all(back.map((heal) => heal())),
  );
  return noAttemptIsSpent(saga);
});

for (const [index, kind] of ([503, "hang"] as const).entries())
  sagaTest(`the AT Protocol answers nobody (${kind})`, { seed: 32 + index }, async (saga) => {
    await saga.ask(6, KNOWN);
    await saga.settled();
    let heal = () => undefined as unknown;
    await duringFault(
      saga,
      () => {
        heal = saga.view.inject({ kind });
      },
      () => heal(),
    );
    return undefined;
  });

sagaTest("the AT Protocol fails for one account", { seed: 34 }, async (saga) => {
  await saga.ask(6, KNOWN.slice(1));
  await saga.settled();
  saga.failing.add(KNOWN[0] as string);
  const heal = saga.view.inject({ did: KNOWN[0] as string, kind: 500 });
  await saga.ask(16);
  await saga.settled();
  heal();
  return undefined;
});

const killed =
  (server: "redisServer" | "natsServer"): SagaScenario =>
  async (saga) => {
    let back = async (): Promise<void> => undefined;
    await duringFault(
      saga,
      async () => {
        back = await saga.kill(server);
      },
      () => back(),
    );
    return noAttemptIsSpent(saga);
  };

sagaTest("Redis killed, and back with its append-only file", { seed: 41 }, killed("redisServer"));
// Invariant 12.
sagaTest("NATS killed, and back with its data", { seed: 42 }, killed("natsServer"));

// Invariant 12.
sagaTest("the database killed while the workers are busy, and back", { seed: 43 }, async (saga) => {
  await duringFault(
    saga,
    () => saga.postgres.kill(),
    () => saga.postgres.start(),
  );
  return noAttemptIsSpent(saga);
});

/** An attempt that throws is repeated by workers as they are. */
const oneRound: SagaScenario = async (saga) => {
  await saga.ask(16);
  return undefined;
};

sagaMutantTest("ack-last", { seed: 51, failpoints: "analysed=throw%0.5" }, oneRound);
sagaMutantTest("message-ids", { seed: 52, failpoints: "analysis-published=throw%0.5" }, oneRound);
