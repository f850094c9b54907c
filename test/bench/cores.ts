import type { Service } from "../support/service.js";
import { World } from "../support/world.js";
import type { Bench, Servers } from "./support/bench.js";
import type { Parameters, Result, Row } from "./support/result.js";
import { addUsers, createEvents, createFanout, createReads, ENTRIES, type Measure, PAGE } from "./support/workloads.js";

const PROCESSES = 2;
const USERS = 2_000;
const AUDIENCE = 100;
const STREAMS = 1_000;
const DROPS = 2_000;

const ABOUT = `Several processes of a role against one: drops for ${AUDIENCE} followers, first pages of ${PAGE}, events of ${STREAMS.toLocaleString("en")} streams. Homes hold ${ENTRIES} drops.
Processes, clients, Redis and NATS share the cores, so the rate grows only while cores are idle. CPU shows what more cores would allow: if
the sum of a unit stays, processes share the work without coordination.`;

type Case = readonly [
  name: string,
  role: string,
  create: (services: readonly Service[], pids: Pids) => Promise<Measure>,
];
type Pids = Readonly<Record<string, number>>;

export async function run({ workers = PROCESSES }: Parameters, bench: Bench): Promise<Result> {
  const world = new World();
  const servers = await bench.servers(world);
  await addUsers(servers, 0, USERS);
  const fanout = { servers, world, followers: AUDIENCE, posts: DROPS };
  const { redisServer, natsServer } = servers;
  const brokers = { redis: redisServer.pid, nats: natsServer.pid };
  const cases: readonly Case[] = [
    ["drops", "fanout", async (_, pids) => createFanout(fanout, { ...pids, ...brokers })],
    ["first pages", "api", async (apis, pids) => createReads(bench, apis, { ...pids, ...brokers })],
    [
      "events",
      "gateway",
      (gateways, pids) => createEvents({ bench, servers, gateways, connections: STREAMS }, { ...pids, ...brokers }),
    ],
  ];
  const rows: Row[] = [];
  for (const one of cases) rows.push(...(await measureCase({ bench, servers, workers }, one)));
  return { about: ABOUT, rows };
}

async function measureCase(
  { bench, servers, workers }: { readonly bench: Bench; readonly servers: Servers; readonly workers: number },
  [name, role, create]: Case,
): Promise<Row[]> {
  const rates: number[] = [];
  const rows: Row[] = [];
  for (let count = 1; count <= workers; count++) {
    const env = { TIMELINE_MAX_ENTRIES: String(ENTRIES) };
    const services: Service[] = [];
    while (services.length < count) services.push(await bench.service(servers, { roles: role, env }));
    const pids = Object.fromEntries(services.map(({ pid }, n) => [`${role} ${n + 1}`, pid]));
    const measure = await create(services, pids);
    // Each process gets as much work before as one alone.
    for (const _ of services) await measure(USERS, true);
    const { units, seconds, cpu } = await measure(USERS, false);
    rates.push(units / seconds);
    rows.push({
      ...{ name: `${name}: ${count} x ${role}`, value: units / seconds, unit: "/s", cpu },
      ...(count === 1 ? {} : { peer: { name: `1 x ${role}`, value: rates[0] as number } }),
    });
    for (const service of services) await service.stop();
  }
  return rows;
}
