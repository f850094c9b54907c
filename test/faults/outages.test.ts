import { setTimeout as delay } from "node:timers/promises";
import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { type Arena, faultTest } from "../support/fault-run.js";

/** Time that something stays away; time itself is the fault. */
const AWAY_MS = process.env["FAULTS_LONG"] === "1" ? 60_000 : 4_000;

/** Two rounds before the fault, two while it lasts, one after it. */
async function around(arena: Arena, begin: () => Promise<void> | void, end: () => Promise<void> | void): Promise<void> {
  await arena.publishSteps(40);
  await arena.checkConservation();
  await begin();
  await arena.publishSteps(40);
  await delay(AWAY_MS / 2);
  await arena.publishSteps(40);
  await delay(AWAY_MS / 2);
  await end();
  arena.healed();
  await arena.publishSteps(40);
  await arena.checkConservation();
}

faultTest("acks lost: what goes to NATS is swallowed", { seed: 31 }, async (arena) => {
  const { natsLink } = arena;
  const start = () => natsLink.set("drop", "toServer");
  await around(arena, start, () => natsLink.set("pass"));
  return () => expect(natsLink.swallowed("toServer")).toBeGreaterThan(0);
});

faultTest("what NATS answers is swallowed", { seed: 32 }, async (arena) => {
  const { natsLink } = arena;
  const start = () => natsLink.set("drop", "toClient");
  await around(arena, start, () => natsLink.set("pass"));
  return () => expect(natsLink.swallowed("toClient")).toBeGreaterThan(0);
});

faultTest("Redis replies lost: written, and nobody is told", { seed: 33 }, async (arena) => {
  const { redisLink } = arena;
  await around(
    arena,
    () => redisLink.set("drop", "toClient"),
    () => redisLink.set("pass"),
  );
  return () => expect(redisLink.swallowed("toClient")).toBeGreaterThan(0);
});

for (const [index, link] of (["redisLink", "natsLink"] as const).entries()) {
  faultTest(`${link === "redisLink" ? "Redis" : "NATS"} held back in both directions`, { seed: 34 + index }, (arena) =>
    around(
      arena,
      () => arena[link].set("pause"),
      () => arena[link].set("pass"),
    ).then(() => undefined),
  );
}

faultTest("connections to Redis and NATS reset again and again, once they are back", { seed: 36 }, async (arena) => {
  for (let round = 0; round < 8; round += 1) {
    await arena.publishSteps(20);
    await eventually(() => arena.redisLink.cut() > 0, "a connection to Redis is cut");
    await eventually(() => arena.natsLink.cut() > 0, "a connection to NATS is cut");
  }
  arena.healed();
  return undefined;
});

faultTest("Redis and NATS both away from the workers", { seed: 37 }, async (arena) => {
  const { redisLink, natsLink } = arena;
  const away = (on: boolean): void => {
    redisLink.refuse(on);
    natsLink.refuse(on);
  };
  await around(
    arena,
    () => away(true),
    () => away(false),
  );
  return undefined;
});

faultTest("NATS killed, and back with its data", { seed: 38 }, async (arena) => {
  let back = async (): Promise<void> => undefined;
  await arena.publishSteps(40);
  await arena.checkConservation();
  back = await arena.killNats();
  await arena.publishSteps(40);
  await delay(AWAY_MS);
  await back();
  arena.healed();
  await arena.publishSteps(40);
  return undefined;
});

faultTest("Redis killed, and back with its append-only file", { seed: 39, remote: false }, async (arena) => {
  await arena.publishSteps(40);
  await arena.checkConservation();
  await arena.publishSteps(40);
  const back = await arena.killRedis();
  arena.changeSilently(20);
  await delay(AWAY_MS);
  await back();
  arena.healed();
  return undefined;
});

faultTest("Redis and NATS both killed, and back", { seed: 40, remote: false }, async (arena) => {
  await arena.publishSteps(40);
  await arena.checkConservation();
  const redisBack = await arena.killRedis();
  const natsBack = await arena.killNats();
  arena.changeSilently(40);
  await delay(AWAY_MS);
  await redisBack();
  await natsBack();
  arena.healed();
  return undefined;
});

faultTest("FLUSHALL under load", { seed: 41 }, async (arena) => {
  await arena.publishSteps(60);
  await arena.checkConservation();
  await arena.publishSteps(30);
  await arena.stack.redis.flushall();
  arena.healed();
  await arena.publishSteps(30);
  await arena.readAll();
  return undefined;
});

faultTest("one bridge, down while drops are published", { seed: 42, remote: false, bridges: [""] }, async (arena) => {
  await arena.publishSteps(40);
  const bridge = arena.supervisor.running.at(-1);
  bridge?.signal("SIGSTOP");
  await arena.stack.redis.call("CLIENT", "KILL", "TYPE", "pubsub");
  await arena.publishUnheard(60);
  await delay(AWAY_MS);
  bridge?.signal("SIGKILL");
  arena.healed();
  await eventually(() => arena.supervisor.deaths === 1, "the bridge has died");
  return undefined;
});

for (const [index, point] of ["bridge-received", "bridge-admitted"].entries()) {
  const armed = `${point}=kill@drop-%0.08`;
  faultTest(`two bridges, one killed at \`${point}\``, bridgesOf(51 + index, armed, ""), async (arena) => {
    for (let round = 0; round < 4; round += 1) {
      await arena.publishSteps(40);
      await eventually(() => arena.supervisor.running.length === 3, "the bridge is back");
    }
    arena.healed();
    return () => expect(arena.supervisor.deaths).toBeGreaterThan(0);
  });
  faultTest(`the only bridge killed at \`${point}\``, { ...bridgesOf(53 + index, armed), remote: false }, only);
}

function bridgesOf(seed: number, ...bridges: readonly string[]) {
  return { seed, bridges, deathsMax: 4 };
}

async function only(arena: Arena): Promise<() => void> {
  for (let round = 0; round < 4; round += 1) {
    await arena.publishUnheard(40);
    await eventually(() => arena.supervisor.running.length === 2, "the bridge is back");
  }
  arena.healed();
  return () => expect(arena.supervisor.deaths).toBeGreaterThan(0);
}
