import { type Server, type ServerWritableStream, status } from "@grpc/grpc-js";
import {
  type HealthCheckRequest,
  type HealthCheckResponse,
  type HealthServer,
  HealthService,
  HealthCheckResponse_ServingStatus as Status,
} from "../../gen/grpc/health/v1/health.js";

/**
 * Serves the health of the server ("") and of its services, which is one.
 * grpc-health-check would parse its protos at each start, for a tenth of the CPU time that a start takes.
 */
export function addHealth(server: Server, services: readonly string[]) {
  const known = new Set(["", ...services]);
  const watchers = new Set<ServerWritableStream<HealthCheckRequest, HealthCheckResponse>>();
  let health = Status.NOT_SERVING;
  const statusOf = (service: string): Status => (known.has(service) ? health : Status.SERVICE_UNKNOWN);
  const implementation: HealthServer = {
    check: ({ request }, answer) =>
      known.has(request.service)
        ? answer(null, { status: health })
        : answer({ code: status.NOT_FOUND, details: `there is no service ${request.service} here` }),
    watch: (call) => {
      watchers.add(call);
      call.once("cancelled", () => watchers.delete(call));
      call.write({ status: statusOf(call.request.service) });
    },
  };
  server.addService(HealthService, implementation);
  return {
    setServing: (serving: boolean): void => {
      health = serving ? Status.SERVING : Status.NOT_SERVING;
      for (const call of watchers) if (known.has(call.request.service)) call.write({ status: health });
    },
    /** Ends the streams of watchers, which would keep a server from closing. */
    close: (): void => {
      for (const call of watchers) call.end();
    },
  };
}
