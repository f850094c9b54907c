import { setTimeout as delay } from "node:timers/promises";
import { expect } from "@jest/globals";
import { MINUTE } from "../../src/kernel/time.js";
import { eventually } from "../support/eventually.js";
import { type FaultRun, faultTest } from "../support/fault-run.js";
import { canRefuseMemory, starve } from "../support/memory.js";
import { shifted } from "../support/other-clock.js";

/** An outage lasts so long; its length is what the tests are about. */
const AWAY_MS = process.env["FAULTS_LONG"] === "1" ? 60_000 : 4_000;

/** Publishes two rounds before the fault, two while it lasts, and one after it. */
async function duringFault(
  run: FaultRun,
  begin: () => Promise<void> | void,
  end: () => Promise<void> | void,
): Promise<void> {
  await run.publishSteps(40);
  await run.checkConservation();
  await begin();
  await run.publishSteps(40);
  await delay(AWAY_MS / 2);
  await run.publishSteps(40);
  await delay(AWAY_MS / 2);
  await end();
  run.faultEnded();
  await run.publishSteps(40);
  await run.checkConservation();
}

faultTest("acks lost: what goes to NATS is swallowed", { seed: 31 }, async (run) => {
  const { natsLink } = run;
  const start = () => natsLink.set("drop", "toServer");
  await duringFault(run, start, () => natsLink.set("pass"));
  return () => expect(natsLink.swallowed("toServer")).toBeGreaterThan(0);
});

faultTest("what NATS answers is swallowed", { seed: 32 }, async (run) => {
  const { natsLink } = run;
  const start = () => natsLink.set("drop", "toClient");
  await duringFault(run, start, () => natsLink.set("pass"));
  return () => expect(natsLink.swallowed("toClient")).toBeGreaterThan(0);
});

faultTest("Redis replies lost after successful writes", { seed: 33 }, async (run) => {
  const { redisLink } = run;
  await duringFault(
    run,
    () => redisLink.set("drop", "toClient"),
    () => redisLink.set("pass"),
  );
  return () => expect(redisLink.swallowed("toClient")).toBeGreaterThan(0);
});

for (const [index, link] of (["redisLink", "natsLink"] as const).entries()) {
  faultTest(`${link === "redisLink" ? "Redis" : "NATS"} held back in both directions`, { seed: 34 + index }, (run) =>
    duringFault(
      run,
      () => run[link].set("pause"),
      () => run[link].set("pass"),
    ).then(() => undefined),
  );
}

faultTest("connections to Redis and NATS reset again and again, once they are back", { seed: 36 }, async (run) => {
  for (let round = 0; round < 8; round += 1) {
    await run.publishSteps(20);
    await eventually(() => run.redisLink.cut() > 0, "a connection to Redis is cut");
    await eventually(() => run.natsLink.cut() > 0, "a connection to NATS is cut");
  }
  run.faultEnded();
  return undefined;
});

faultTest("Redis and NATS both away from the workers", { seed: 37 }, async (run) => {
  const { redisLink, natsLink } = run;
  const away = (on: boolean): void => {
    redisLink.refuse(on);
    natsLink.refuse(on);
  };
  await duringFault(
    run,
    () => away(true),
    () => away(false),
  );
  return undefined;
});

const STEPPING = shifted(0, 10 * MINUTE, -10 * MINUTE);

faultTest("clocks of one process after the other step by ten minutes", { seed: 43, env: STEPPING }, async (run) => {
  const step = [() => run.gateway.signal("SIGUSR2"), () => run.supervisor.signal("SIGUSR2")];
  for (const stepOne of [...step, ...step]) {
    await run.publishSteps(20);
    stepOne();
    await run.publishSteps(20);
    await run.checkConservation();
  }
  for (const { output } of [run.gateway, ...run.supervisor.running])
    await eventually(() => output().includes("600 s behind that of Redis"), "the log tells of the clock");
  run.faultEnded();
  await run.readAll();
  return undefined;
});

faultTest("NATS killed, and back with its data", { seed: 38 }, async (run) => {
  let back = async (): Promise<void> => undefined;
  await run.publishSteps(40);
  await run.checkConservation();
  back = await run.killNats();
  await run.publishSteps(40);
  await delay(AWAY_MS);
  await back();
  run.faultEnded();
  await run.publishSteps(40);
  return undefined;
});

faultTest("Redis killed, and back with its append-only file", { seed: 39, remote: false }, async (run) => {
  await run.publishSteps(40);
  await run.checkConservation();
  await run.publishSteps(40);
  const back = await run.killRedis();
  run.changeWithoutPublishing(20);
  await delay(AWAY_MS);
  await back();
  run.faultEnded();
  return undefined;
});

faultTest("Redis and NATS both killed, and back", { seed: 40, remote: false }, async (run) => {
  await run.publishSteps(40);
  await run.checkConservation();
  const redisBack = await run.killRedis();
  const natsBack = await run.killNats();
  run.changeWithoutPublishing(40);
  await delay(AWAY_MS);
  await redisBack();
  await natsBack();
  run.faultEnded();
  return undefined;
});

if (canRefuseMemory) {
  faultTest("Redis ends for want of memory, and is back", { seed: 44, remote: false }, async (run) => {
    await run.publishSteps(80);
    const back = await run.killRedis(starve);
    run.changeWithoutPublishing(20);
    await back();
    run.faultEnded();
    return undefined;
  });

  faultTest("NATS ends for want of memory, and is back", { seed: 45 }, async (run) => {
    await run.publishSteps(80);
    const back = await run.killNats(starve);
    await run.publishSteps(40);
    await back();
    run.faultEnded();
    await run.publishSteps(40);
    return undefined;
  });
}

faultTest("FLUSHALL under load", { seed: 41 }, async (run) => {
  await run.publishSteps(60);
  await run.checkConservation();
  await run.publishSteps(30);
  await run.stack.redis.flushall();
  run.faultEnded();
  await run.publishSteps(30);
  await run.readAll();
  return undefined;
});

faultTest("one bridge, down while drops are published", { seed: 42, remote: false, bridges: [""] }, async (run) => {
  await run.publishSteps(40);
  const bridge = run.supervisor.running.at(-1);
  bridge?.signal("SIGSTOP");
  await run.stack.redis.call("CLIENT", "KILL", "TYPE", "pubsub");
  await run.publishUnconfirmed(60);
  await delay(AWAY_MS);
  bridge?.signal("SIGKILL");
  run.faultEnded();
  await eventually(() => run.supervisor.deaths === 1, "the bridge has died");
  return undefined;
});

for (const [index, point] of ["bridge-received", "bridge-admitted"].entries()) {
  const armed = `${point}=kill@drop-%0.08`;
  faultTest(`two bridges, one killed at \`${point}\``, bridgesOf(51 + index, armed, ""), async (run) => {
    for (let round = 0; round < 4; round += 1) {
      await run.publishSteps(40);
      await eventually(() => run.supervisor.running.length === 3, "the bridge is back");
    }
    run.faultEnded();
    return () => expect(run.supervisor.deaths).toBeGreaterThan(0);
  });
  faultTest(`the only bridge killed at \`${point}\``, { ...bridgesOf(53 + index, armed), remote: false }, only);
}

function bridgesOf(seed: number, ...bridges: readonly string[]) {
  return { seed, bridges, deathsMax: 4 };
}

async function only(run: FaultRun): Promise<() => void> {
  for (let round = 0; round < 4; round += 1) {
    await run.publishUnconfirmed(40);
    await eventually(() => run.supervisor.running.length === 2, "the bridge is back");
  }
  run.faultEnded();
  return () => expect(run.supervisor.deaths).toBeGreaterThan(0);
}
