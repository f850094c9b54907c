import { expect } from "@jest/globals";
import { type FaultRun, faultTest } from "../support/fault-run.js";

/** A worker dies at these steps, in so many percent of the passes. */
const POINTS = { handle: 3, write: 4, written: 4, checked: 4, notified: 4, handled: 3, acked: 3 };

/** Yields so many rounds, and more until a worker has died: failpoints are random. */
async function* untilDeath(run: FaultRun, rounds: number): AsyncGenerator<number> {
  for (let round = 0; round < rounds || (run.supervisor.deaths === 0 && round < 10 * rounds); round++) {
    if (round >= rounds) await run.done();
    if (round < rounds || run.supervisor.deaths === 0) yield round;
  }
}

async function fourRounds(run: FaultRun): Promise<() => void> {
  for await (const _ of untilDeath(run, 4)) {
    await run.publishSteps(45);
    await run.checkConservation();
  }
  run.faultEnded();
  return () => expect(run.supervisor.deaths).toBeGreaterThan(0);
}

for (const [index, [point, percent]] of Object.entries(POINTS).entries()) {
  const failpoints = `${point}=kill%${percent / 100}`;
  faultTest(`a worker killed at \`${point}\``, { seed: index + 1, failpoints, deathsMax: 3 }, fourRounds);
}

for (const [index, point] of ["dead-letter", "dead-lettered"].entries()) {
  const failpoints = `${point}=kill%0.4`;
  faultTest(`a worker killed at \`${point}\``, { seed: index + 11, failpoints, deathsMax: 3 }, async (run) => {
    for await (const number of untilDeath(run, 8)) {
      await run.publishSteps(15);
      await run.publishInvalid(`no event ${number}`);
      await run.checkConservation();
    }
    run.faultEnded();
    return () => expect(run.supervisor.deaths).toBeGreaterThan(0);
  });
}

faultTest("three workers, each killed at `written`", workersOf(3, "written=kill%0.04"), fourRounds);

function workersOf(workers: number, failpoints: string) {
  return { seed: 21, workers, failpoints, deathsMax: 4 };
}
