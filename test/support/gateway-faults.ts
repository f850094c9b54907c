/** Faults that event streams of all timelines meet in the same way. */
import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { expect } from "@jest/globals";
import type { NatsConnection } from "nats";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { type Broker, startNats } from "../../src/sandbox/brokers/index.js";
import { privateNats } from "./brokers.js";
import { eventually } from "./eventually.js";
import { cleanups, type Raw, type Running, token } from "./gateway.js";

/** Opens a stream whose client reads the begin of the answer, and nothing after it. */
export async function openUnreadStream({ port }: Running, user: string, timeline = "home"): Promise<void> {
  const slow = connectTcp({ port, host: "127.0.0.1" });
  cleanups.push(() => slow.destroy());
  slow.on("error", () => undefined);
  const authorization = `Bearer ${await token(user)}`;
  slow.write(`GET /events/timeline/${timeline} HTTP/1.1\r\nHost: x\r\nAuthorization: ${authorization}\r\n\r\n`);
  await once(slow, "readable");
}

interface Outage {
  /** Opens a stream of a gateway on this connection. */
  readonly open: (nats: NatsConnection) => Promise<{ readonly running: Running; readonly raw: Raw }>;
  /** Messages have this subject, and this body for a drop. */
  readonly subject: string;
  readonly body: (drop: string) => object;
  readonly meanwhile?: (running: Running) => Promise<void>;
}

/** Kills NATS and starts it again: a stream gets the drops of before and after in order, and no reset. */
export async function survivesNatsOutage({ open, subject, body, meanwhile }: Outage): Promise<void> {
  const own = await privateNats();
  let again: Broker | undefined;
  cleanups.push(
    () => own.stop(),
    () => again?.stop(),
  );
  const connect = async (url: string): Promise<NatsConnection> => {
    const connection = await connectNats({ servers: [url], name: "outage" }, silent);
    cleanups.push(() => connection.close());
    return connection;
  };
  const publish = (drop: string, to: NatsConnection) => to.jetstream().publish(subject, JSON.stringify(body(drop)));
  const link = await connect(own.url);
  await applyTopology(await link.jetstreamManager(), { replicas: 1 }, silent);
  const { running, raw } = await open(link);
  await publish("d1", link);
  await raw.sees(["d1"]);
  own.kill("SIGKILL");
  await own.exited;
  await eventually(() => !running.gateway.healthy(), "the gateway notices");
  await meanwhile?.(running);
  again = await startNats({ dir: own.dir, port: own.port });
  const other = await connect(again.url);
  for (const drop of ["d2", "d3"]) await publish(drop, other);
  await raw.sees(["d1", "d2", "d3"]);
  await publish("d4", other);
  await raw.sees(["d1", "d2", "d3", "d4"]);
  expect(raw.resets()).toEqual([]);
}
