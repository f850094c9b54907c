import { World } from "../support/world.js";
import type { Bench } from "./support/bench.js";
import type { Parameters, Result, Row } from "./support/result.js";
import {
  addUsers,
  createEvents,
  createFanout,
  createReads,
  ENTRIES,
  LISTENING,
  type Measure,
  PAGE,
} from "./support/workloads.js";

const SIZES = [1_000, 10_000, 100_000];
const AUDIENCE = 100;
const STREAMS = 500;
const DROPS = 1_000;

const ABOUT = `The cost of an operation with 1, 10 and 100 times as many users, by one process a role: a drop for ${AUDIENCE} followers, an uncached first page
of ${PAGE}, and an event for one of ${STREAMS} streams. Homes are full with ${ENTRIES} drops; one user in ${LISTENING} has listened lately. The figure is the CPU of all servers.`;

export async function run(
  { followers = AUDIENCE, posts = DROPS, connections = STREAMS }: Parameters,
  bench: Bench,
): Promise<Result> {
  const world = new World();
  const servers = await bench.servers(world);
  const env = { TIMELINE_MAX_ENTRIES: String(ENTRIES) };
  const worker = await bench.service(servers, { roles: "fanout", env });
  const api = await bench.service(servers, { roles: "api", env: { ...env, TIMELINE_READ_CACHE_BYTES: "0" } });
  const gateway = await bench.service(servers, { roles: "gateway", env });
  const stored = { redis: servers.redisServer.pid, nats: servers.natsServer.pid };
  const measures: Readonly<Record<string, Measure>> = {
    "fan-out of a drop": createFanout({ servers, world, followers, posts }, { worker: worker.pid, ...stored }),
    "a first page": createReads(bench, [api], { api: api.pid, redis: stored.redis }),
    "an event of a stream": await createEvents(
      { bench, servers, gateways: [gateway], connections },
      { gateway: gateway.pid, ...stored },
    ),
  };
  const rows: Row[] = [];
  const first = new Map<string, number>();
  let held = 0;
  for (const users of SIZES) {
    await addUsers(servers, held, users);
    for (const measure of held === 0 ? Object.values(measures) : []) await measure(users, true);
    held = users;
    for (const [name, measure] of Object.entries(measures)) {
      await measure(users, true);
      const { cpu } = await measure(users, false);
      const value = Object.values(cpu).reduce((sum, used) => sum + used, 0);
      const peer = first.get(name);
      if (peer === undefined) first.set(name, value);
      rows.push({
        ...{ name: `${users.toLocaleString("en")} users: ${name}`, value, unit: "µs", cpu },
        ...(peer === undefined ? {} : { peer: { name: "the fewest users", value: peer } }),
      });
    }
  }
  return { about: ABOUT, rows };
}
