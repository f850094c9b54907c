import type { NatsConnection } from "nats";
import type { Erased } from "../state/index.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";
import { EventLog } from "./log.nats.js";
import { UpstreamView } from "./upstreams.grpc.js";
import { eventsWithoutErased } from "./without-erased.js";

interface Handles {
  readonly nats: NatsConnection;
  readonly upstreams: (caller: "operator") => Upstreams;
}

/** Returns how the fences are read from the log once they were lost, and the time of the retention from the upstreams. */
export const openFenceSources = ({ nats, upstreams }: Handles) => ({
  readHistory: (erased: Pick<Erased, "among">) => eventsWithoutErased(erased, new EventLog(nats).readHistory()),
  readRetentionStart: () => new UpstreamView(upstreams("operator")).readRetentionStart(),
});
