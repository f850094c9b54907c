import { type Outbox, type OutboxOptions, startOutbox } from "../outbox/index.js";
import type { StoringRoleDeps } from "./role.js";
import { VERSION } from "./version.js";

/** Starts the outbox of a service on the connections of this process. */
export const startOutboxOf = (
  { config, connections: { publish, scripts }, db, log }: StoringRoleDeps<"outbox">,
  service: Pick<OutboxOptions, "source" | "prepare">,
): Promise<Outbox> =>
  startOutbox({
    ...service,
    db,
    publish,
    deadLetters: publish,
    channels: config.outbox.relayChannels ? scripts.client : undefined,
    version: VERSION,
    log,
  });
