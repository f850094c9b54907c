import { type Server, status } from "@grpc/grpc-js";
import {
  type HealthServer,
  HealthService,
  HealthCheckResponse_ServingStatus as Status,
} from "../../gen/grpc/health/v1/health.js";

/**
 * Serves the health of the server ("") and of its services, which is one. Returns the function that sets it.
 * grpc-health-check would parse its protos at each start, for a tenth of the CPU time that a start takes.
 */
export function addHealth(server: Server, services: readonly string[]): (serving: boolean) => void {
  const known = new Set(["", ...services]);
  const watchers = new Set<() => void>();
  let health = Status.NOT_SERVING;
  const implementation: HealthServer = {
    check: ({ request }, answer) =>
      known.has(request.service)
        ? answer(null, { status: health })
        : answer({ code: status.NOT_FOUND, details: `there is no service ${request.service} here` }),
    watch: (call) => {
      const tell = (): void => void call.write({ status: health });
      if (known.has(call.request.service)) {
        watchers.add(tell);
        call.once("cancelled", () => watchers.delete(tell));
        tell();
      } else call.write({ status: Status.SERVICE_UNKNOWN });
    },
  };
  server.addService(HealthService, implementation);
  return (serving) => {
    health = serving ? Status.SERVING : Status.NOT_SERVING;
    for (const tell of watchers) tell();
  };
}
