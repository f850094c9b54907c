import { writeFileSync } from "node:fs";
import type { Parameters, Result, Row } from "./support/result.js";
import { DEFAULT_THRESHOLD, loadOf, nameOf, type Scene, sceneOf } from "./support/scene.js";
import { drawCores, pageOf } from "./support/simulation-page.js";
import { coresOf, type Strategy } from "./support/strategies.js";
import { readUnitCosts } from "./support/unit-costs.js";

const USERS = 100_000_000;
const SEED = 1;
/** Of sizes other than the main one; each drawn user then stands for several. */
const DRAWS = 20_000_000;
/** For docs/capacity.md. */
const SIZES = [100_000, 1_000_000, 10_000_000, 100_000_000, 500_000_000];
const about = (
  users: number,
): string => `Computes, for ${users.toLocaleString("en")} simulated users, the average CPU of Redis for entries and first pages if authors above a threshold are pulled. A
unit costs what \`fanout\`, \`read\`, \`big\` and \`units\` measured last. [simulation.md](simulation.md) has the model and the conclusion.`;

export async function run({ users = USERS, seed = SEED }: Parameters): Promise<Result> {
  const costs = readUnitCosts();
  const main = sceneOf({ users, seed });
  const alike = sceneOf({ users, seed, rates: "alike", draws: DRAWS });
  const scenes = { "by followers": main, alike } as const;
  writeFileSync("test/bench/results/simulation.md", pageOf({ scenes, costs, seed }));
  writeFileSync("test/bench/results/simulation.svg", drawCores(main, costs));
  const loads = SIZES.map((size) => loadOf(size === users ? main : sceneOf({ users: size, seed, draws: DRAWS })));
  return { about: about(users), rows: rowsOf(main, costs), ...{ loads } };
}

function rowsOf({ population, strategies }: Scene, costs: ReturnType<typeof readUnitCosts>): Row[] {
  const { entry, page, author } = costs.server;
  const unit = { entry: entry.value, page: page.value, author: author.value };
  const shown = [Number.POSITIVE_INFINITY, 1_000_000, DEFAULT_THRESHOLD, 100_000, 10_000, 0];
  const cores = (one: Strategy): number => coresOf(one, population.users, unit).all;
  const push = strategies.at(-1) as Strategy;
  return shown.map((threshold) => {
    const one = strategies.find((strategy) => strategy.threshold === threshold) as Strategy;
    return {
      ...{ name: nameOf(threshold), value: cores(one), unit: "cores" },
      ...(one === push ? {} : { peer: { name: "push", value: cores(push) } }),
    };
  });
}
