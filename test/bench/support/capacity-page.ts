import { readFileSync } from "node:fs";
import { bytesKept, CHOSEN, LISTENING, limitsOf, nodesOf, PEAK, requestsOf, settingsOf } from "./capacity.js";
import { peopleTable } from "./capacity-people.js";
import { PUBLISHED } from "./published.js";
import type { Load } from "./scene.js";
import { plain, short, sized, tableOf } from "./tables.js";
import { readUnitCosts, type Unit } from "./unit-costs.js";

export const CAPACITY_PAGE = "docs/capacity.md";
/** Users whose share of each load the limits are counted with. */
const LIMITS_AT = 100_000_000;
const SHOWN = [1_000_000, 500_000, 100_000] as const;

/** The page with its tables counted again from the stored runs; a table stands between two comments that name it. */
export function withTables(page: string): string {
  const tables = tablesOf();
  return page.replace(
    /(<!-- table: (\w+) -->\n)[\s\S]*?(<!-- end -->)/g,
    (_, start: string, name: string, end: string) => `${start}${tables[name] ?? `no table ${name}`}\n${end}`,
  );
}

function tablesOf(): Readonly<Record<string, string>> {
  const { loads } = JSON.parse(readFileSync("test/bench/results/simulation.json", "utf8")) as {
    loads: readonly Load[];
  };
  const costs = readUnitCosts();
  const sizes = loads.map(({ users }) => short(users));
  const table = (rows: readonly (readonly [string, readonly number[]])[], shown = short): string =>
    tableOf(
      ["Users", ...sizes],
      rows.map(([name, values]) => [name, ...values.map(shown)]),
    );
  const [requests, bytes, nodes] = [
    loads.map(requestsOf),
    loads.map((load) => bytesKept(load, costs)),
    loads.map((load) => nodesOf(load, costs)),
  ];
  const from = <Row>(all: readonly Row[], what: (row: Row) => number): number[] => all.map(what);
  const main = loads.find(({ users }) => users === LIMITS_AT) as Load;
  return {
    requests: table([
      ["drops/s", from(requests, ({ drops }) => drops)],
      ["reads of homes/s", from(requests, ({ reads }) => reads)],
      ["entries/s, push", from(requests, ({ entries }) => entries)],
      ["authors merged a read, default", from(requests, ({ merged }) => merged)],
      ["open streams", from(requests, ({ streams }) => streams)],
      ["notifications/s", from(requests, ({ notifications }) => notifications)],
    ]),
    bytes: table(
      (
        [
          ["Redis: homes", ({ homes }) => homes],
          ["Redis: pulled authors of readers, default", ({ pulls }) => pulls],
          ["PostgreSQL: drops of a year", ({ dropsAYear }) => dropsAYear],
          ["PostgreSQL: follows", ({ follows }) => follows],
          ["NATS: `DROPS`, 7 days", ({ log }) => log],
          ["NATS: `COMPLETIONS`, 1 day", ({ completions }) => completions],
          ["NATS: `NOTIFY`, 10 minutes at peak", ({ notify }) => notify],
        ] as const satisfies readonly (readonly [string, (kept: (typeof bytes)[number]) => number])[]
      ).map(([name, what]) => [name, from(bytes, what)]),
      sized,
    ),
    nodes: table([
      ["Redis masters for memory", from(nodes, ({ byMemory }) => byMemory)],
      ["Redis masters for CPU, push", from(nodes, ({ byCpu }) => byCpu)],
      ...SHOWN.map((threshold): [string, number[]] => [
        `Redis masters for CPU, ${threshold.toLocaleString("en")}`,
        from(nodes, ({ byCpuPulled }) => byCpuPulled(threshold)),
      ]),
      ["NATS servers", from(nodes, (one) => one.nats)],
      ["PostgreSQL primaries for `posts`", from(nodes, ({ databases }) => databases)],
      ["`fanout` processes", from(nodes, ({ workers }) => workers)],
      ["`api` processes", from(nodes, ({ apis }) => apis)],
      ["`gateway` processes", from(nodes, ({ gateways }) => gateways)],
      ["`posts` processes", from(nodes, ({ posts }) => posts)],
    ]),
    limits: tableOf(
      ["", "Limit", "Users"],
      limitsOf(main, costs).map(({ what, limit, unit, users }) => [
        ...[what, unit === "B" ? sized(limit) : `${short(limit)} ${unit}`, short(users)],
      ]),
    ),
    settings: tableOf(
      ["Settings", "Homes", "Masters for them", "Cores at peak", "Masters for them"],
      settingsOf(loads.at(-1) as Load, costs).map(({ what, bytes, byMemory, cores, byCpu }) => [
        ...[what, sized(bytes), short(byMemory), short(cores), short(byCpu)],
      ]),
    ),
    people: peopleTable(),
    units: tableOf(["Unit", "Cost, in a Cluster", "Measured by"], unitRows(costs)),
    chosen: tableOf(
      ["Chosen", ""],
      Object.values(CHOSEN).map(({ value, unit }) => [unit.startsWith("bytes") ? sized(value) : short(value), unit]),
    ),
    published: tableOf(
      ["Published or counted from it", "", "By"],
      [
        ["peak, times the average", plain(PEAK), PUBLISHED.dropsAtPeak.by],
        ["of the users have a stream open", plain(LISTENING), `${PUBLISHED.daily.by}; ${PUBLISHED.minutes.by}`],
        ["drops a user and day", plain((86_400 * PUBLISHED.drops.value) / PUBLISHED.users.value), PUBLISHED.drops.by],
        ["reads a user and day", plain((86_400 * PUBLISHED.reads.value) / PUBLISHED.users.value), PUBLISHED.reads.by],
      ],
    ),
  };
}

const NAMES: Readonly<Record<string, string>> = {
  entry: "Redis, an entry",
  page: "Redis, a page",
  author: "Redis, one more author in a page",
  workerEntry: "`fanout`, an entry",
  apiPage: "`api`, a page",
  workerDrop: "`fanout`, a drop",
  natsDrop: "NATS, a drop",
  homeEntry: "Redis, an entry of a home",
  pullsMember: "Redis, a pulled author of a reader",
  listenerLook: "Redis Cluster, a look for a listener",
  workerNotification: "`fanout`, an entry and its notification",
  natsNotification: "NATS, a notification",
  gatewayEvent: "`gateway`, an event",
  gatewayStream: "`gateway`, a stream",
  bridgeEvent: "`bridge`, an event",
  postsDrop: "`posts`, a drop",
  databaseDrop: "PostgreSQL, a drop with its event",
  drop: "PostgreSQL, a drop",
  follow: "PostgreSQL, a follow",
  dropInLog: "NATS, a drop in `DROPS`",
  completion: "NATS, a completion",
  notification: "NATS, a notification in `NOTIFY`",
};

function unitRows({ server, cluster, ...others }: ReturnType<typeof readUnitCosts>): string[][] {
  const row = (name: string, units: readonly Unit[]): string[] => [
    NAMES[name] ?? name,
    units.map(({ value, unit }) => `${plain(value)} ${unit}`).join("; "),
    units.map(({ by }) => by).join("; "),
  ];
  const both = Object.entries(server).map(([name, unit]) => row(name, [unit, cluster[name as keyof typeof cluster]]));
  return [...both, ...Object.entries(others).map(([name, unit]) => row(name, [unit]))];
}
