import type { Bench } from "./bench.js";
import { BigWorld } from "./big-world.js";
import { type Audience, addAudience, entryCosts, fillFull } from "./cluster-entries.js";
import { pageCosts } from "./cluster-pages.js";
import { type Both, openSides } from "./cluster-sides.js";
import type { Cpu } from "./measure.js";
import type { Parameters } from "./result.js";

const HOMES = 4_000;
export const ENTRIES = 1_000;
const FOLLOWERS = [100, 1_000];
/** Of each author in a round. */
const POSTS = 4;
const IN_FLIGHT = 64;

export interface ClusterCosts extends Awaited<ReturnType<typeof pageCosts>> {
  readonly entries: readonly (readonly [Audience, Both<Cpu>])[];
}

/** Costs of one server and of a Redis Cluster. */
export async function clusterCosts(parameters: Parameters, bench: Bench): Promise<ClusterCosts> {
  const { users = HOMES, entries = ENTRIES, posts = POSTS, connections: inFlight = IN_FLIGHT, turns } = parameters;
  const world = new BigWorld(0);
  const sizes = parameters.followers === undefined ? FOLLOWERS : [parameters.followers];
  const audiences = sizes.map((followers) => ({ followers, authors: Math.max(1, Math.floor(users / followers)) }));
  for (const audience of audiences) addAudience(world, audience);
  const sides = await openSides(bench, world);
  await fillFull(sides, audiences, entries);
  const ofEntries: [Audience, Both<Cpu>][] = [];
  for (const audience of audiences)
    ofEntries.push([audience, await entryCosts(bench, sides, { audience, entries, posts, turns })]);
  return { entries: ofEntries, ...(await pageCosts(bench, sides, { inFlight, turns })) };
}
