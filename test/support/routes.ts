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
