import { TcpProxy } from "./proxy.js";
import { freePorts } from "./service.js";

/** The routes between the servers of a NATS cluster: a proxy for each direction of each pair. */
export interface Routes {
  /** The arguments of a server. */
  argsOf(index: number): readonly string[];
  /** From now on nothing that this server and the others send each other arrives, and no connection ends for it. */
  isolate(index: number): void;
  /** Links whose bytes were lost are reset; new ones pass. */
  heal(): void;
  close(): Promise<void>;
}

/** Servers tell each other where they can be reached. Nobody listens there, so that every route goes through a proxy. */
const NOWHERE = "127.0.0.1:1";

/** Reserves ports and opens the proxies. */
export async function routesOf(count: number): Promise<Routes> {
  const ports = (await Promise.all(Array.from({ length: count }, freePorts))).map(([port]) => port);
  const pairs = ports.flatMap((port, to) => ports.flatMap((_, from) => (from === to ? [] : [{ from, to, port }])));
  const links = await Promise.all(
    pairs.map(async ({ from, to, port }) => ({ from, to, proxy: await TcpProxy.open(port) })),
  );
  return {
    argsOf: (index) => [
      ...["-cluster", `nats://127.0.0.1:${ports[index]}`, "-cluster_advertise", NOWHERE],
      ...[
        "-routes",
        links
          .filter(({ from }) => from === index)
          .map(({ proxy }) => proxy.url("nats"))
          .join(","),
      ],
    ],
    isolate: (index) => {
      for (const { from, to, proxy } of links) if (from === index || to === index) proxy.set("drop");
    },
    heal: () => {
      for (const { proxy } of links) proxy.set("pass");
    },
    close: async () => void (await Promise.all(links.map(({ proxy }) => proxy.close()))),
  };
}

/** The ways to the nodes of a Redis Cluster: a proxy before each port, which knows the other nodes by their addresses. */
export interface NodeRoutes extends Pick<Routes, "isolate" | "heal" | "close"> {
  /** The arguments of a node. */
  argsOf(index: number): readonly string[];
  /** Names the ports of a node that has started. */
  lead(index: number, port: number, busPort: number): void;
  /** Where other nodes and clients find a node. */
  portsOf(index: number): readonly [port: number, busPort: number];
}

/** Opens the proxies. Clients, whose address is that of none of the nodes, reach an isolated node. */
export async function nodeRoutesOf(count: number): Promise<NodeRoutes> {
  const open = async (_: unknown, index: number) => ({
    address: `127.0.0.${index + 2}`,
    proxies: [await TcpProxy.open(0), await TcpProxy.open(0)] as const,
  });
  const nodes = await Promise.all(Array.from({ length: count }, open));
  const portsOf = (index: number) =>
    (nodes[index] as (typeof nodes)[number]).proxies.map((proxy) => Number(new URL(proxy.url("redis")).port)) as [
      number,
      number,
    ];
  const swallow = (of: (to: number) => readonly string[]): void => {
    for (const [to, { proxies }] of nodes.entries()) for (const proxy of proxies) proxy.swallowOf(...of(to));
  };
  return {
    argsOf: (index) => [
      ...["--bind-source-addr", nodes[index]?.address as string, "--cluster-announce-ip", "127.0.0.1"],
      ...["--cluster-announce-port", String(portsOf(index)[0])],
      ...["--cluster-announce-bus-port", String(portsOf(index)[1])],
    ],
    lead: (index, ...ports) => {
      for (const [at, port] of ports.entries()) nodes[index]?.proxies[at]?.aim(port);
    },
    portsOf,
    isolate: (index) =>
      swallow((to) => nodes.filter((_, from) => (from === index) !== (to === index)).map(({ address }) => address)),
    heal: () => swallow(() => []),
    close: async () => void (await Promise.all(nodes.flatMap(({ proxies }) => proxies.map((proxy) => proxy.close())))),
  };
}
