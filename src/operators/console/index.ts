import { type HttpOptions, serveHttp } from "../../platform/http/serve.js";
import { createOpsRouter, type OpsDeps } from "./routes.http.js";

export { keepHistory } from "./history.js";
export { createReadQueues } from "./queues.nats.js";
export type { OpsRecords } from "./routes.http.js";

/** Serves the console at a port of its own, which needs to be open to operators alone. */
export async function startOps({
  address,
  keepAliveMs,
  ...deps
}: OpsDeps & Pick<HttpOptions, "address" | "keepAliveMs">) {
  const http = await serveHttp({ address, keepAliveMs, log: deps.log });
  http.use(createOpsRouter(deps));
  http.complete();
  return { port: http.port, close: (graceMs: number) => http.close(graceMs) };
}
