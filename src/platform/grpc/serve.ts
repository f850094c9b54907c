import { networkInterfaces } from "node:os";
import { Server } from "@grpc/grpc-js";
import type { TlsFiles } from "../tls.js";
import { serverCredentials } from "./credentials.js";
import { addHealth } from "./health.js";
import { MessageTypes } from "./message-types.js";
import { addReflection } from "./reflection.js";
import { readingInt64, type Service } from "./unary.js";

export type GrpcServer = Awaited<ReturnType<typeof serveGrpc>>;

const OPTIONS = {
  // Its counts of calls and messages are read by nobody.
  "grpc.enable_channelz": 0,
  "grpc.max_concurrent_streams": 1_000,
  "grpc.keepalive_time_ms": 60_000,
  // New servers behind a balancer get their share of connections.
  "grpc.max_connection_age_ms": 30 * 60_000,
  "grpc.max_connection_age_grace_ms": 60_000,
} as const;

const hasIpv6 = (): boolean =>
  Object.values(networkInterfaces()).some((all) => all?.some(({ family }) => family === "IPv6"));

/** Also serves health and reflection. `address` is host:port; port 0 takes a free one. */
export async function serveGrpc(address: string, services: readonly Service[], tls: TlsFiles) {
  const server = new Server(OPTIONS);
  const types = new MessageTypes();
  for (const { definition, implementation } of services)
    server.addService(readingInt64(definition, types), implementation);
  const names = services.map(({ name }) => name);
  const health = addHealth(server, names);
  const listed = [...names, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];
  const reflection = addReflection(server, listed, types);
  const bind = (where: string): Promise<number> =>
    new Promise((resolve, reject) => {
      server.bindAsync(where, serverCredentials(tls), (error, port) => (error ? reject(error) : resolve(port)));
    });
  // [::] takes IPv4 too. A machine without IPv6 does not have it.
  const everywhere = address.replace(/^0\.0\.0\.0:/, "[::]:");
  const wanted = everywhere === address || hasIpv6() ? everywhere : address;
  const port = await bind(wanted);
  const bound = wanted.replace(/\d+$/, String(port));
  return {
    port,
    /** The health service answers by this. */
    setServing: health.setServing,
    /** Refuses new calls; ends once running calls have ended, or after `graceMs`. */
    close: (graceMs: number) =>
      new Promise<void>((resolve) => {
        health.close();
        reflection.close();
        // Calls that outlast the grace are ended; a second time, those of connections that were still being made.
        server.drain(bound, graceMs);
        const force = setTimeout(() => server.drain(bound, 0), graceMs);
        server.tryShutdown(() => {
          clearTimeout(force);
          resolve();
        });
      }),
  };
}
