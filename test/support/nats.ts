import type { JetStreamManager, NatsConnection } from "nats";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { createPublisher, type Publisher } from "../../src/platform/nats/publish.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { startNats } from "../../src/sandbox/brokers/index.js";
import { privateNats } from "./brokers.js";

/** A private nats-server with our streams, connected to as the service does. */
export interface NatsBench extends Publisher {
  readonly broker: Broker;
  readonly connection: NatsConnection;
  readonly manager: JetStreamManager;
  /** Kills the server and starts it again on the same port and data. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

/** Starts it; call `close` in the end. */
export async function openNats(): Promise<NatsBench> {
  const broker = await privateNats();
  let restarted: Broker | undefined;
  const connection = await connectNats({ servers: [broker.url], name: "test" }, silent);
  const manager = await connection.jetstreamManager();
  await applyTopology(manager, { replicas: 1 }, silent);
  return {
    broker,
    connection,
    manager,
    ...createPublisher(connection),
    restart: async () => {
      const running = restarted ?? broker;
      running.kill("SIGKILL");
      await running.exited;
      restarted = await startNats({ dir: broker.dir, port: broker.port });
    },
    close: async () => {
      await connection.close();
      await restarted?.stop();
      await broker.stop();
    },
  };
}
