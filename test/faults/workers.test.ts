import { expect } from "@jest/globals";
import { type Arena, faultTest } from "../support/fault-run.js";

/** The steps at which a worker dies, and the percentage of passes. */
const POINTS = { handle: 3, write: 4, written: 4, checked: 4, notified: 4, handled: 3, acked: 3 };

/** Numbers of so many rounds, and of more until a worker has died: the points draw lots. */
function* untilDeath({ supervisor }: Arena, rounds: number): Generator<number> {
  for (let round = 0; round < rounds || (supervisor.deaths === 0 && round < 10 * rounds); round++) yield round;
}

async function fourRounds(arena: Arena): Promise<() => void> {
  for (const _ of untilDeath(arena, 4)) {
    await arena.publishSteps(45);
    await arena.checkConservation();
  }
  arena.healed();
  return () => expect(arena.supervisor.deaths).toBeGreaterThan(0);
}

for (const [index, [point, percent]] of Object.entries(POINTS).entries()) {
  const failpoints = `${point}=kill%${percent / 100}`;
  faultTest(`a worker killed at \`${point}\``, { seed: index + 1, failpoints, deathsMax: 3 }, fourRounds);
}

for (const [index, point] of ["dead-letter", "dead-lettered"].entries()) {
  const failpoints = `${point}=kill%0.4`;
  faultTest(`a worker killed at \`${point}\``, { seed: index + 11, failpoints, deathsMax: 3 }, async (arena) => {
    for (const number of untilDeath(arena, 8)) {
      await arena.publishSteps(15);
      await arena.publishInvalid(`no event ${number}`);
      await arena.checkConservation();
    }
    arena.healed();
    return () => expect(arena.supervisor.deaths).toBeGreaterThan(0);
  });
}

faultTest("three workers, each killed at `written`", workersOf(3, "written=kill%0.04"), fourRounds);

function workersOf(workers: number, failpoints: string) {
  return { seed: 21, workers, failpoints, deathsMax: 4 };
}
