import { createServerIdentity, type Fenced } from "../../state/index.js";
import { EventLog } from "../log.nats.js";
import { checkRedisOfLog, findRedisOfLog } from "./binding.js";

interface Handles {
  readonly scripts: Parameters<typeof createServerIdentity>[0];
  readonly fenced: Fenced;
  readonly nats: ConstructorParameters<typeof EventLog>[0];
}

/**
 * Returns a function that reads the sequence up to which the log created at that time was applied; undefined for
 * another log.
 */
export function createReadAcked({ scripts, fenced }: Omit<Handles, "nats">) {
  const identity = createServerIdentity(scripts, fenced);
  return async (logCreated: string): Promise<number | undefined> => {
    const { log, acked } = await identity.read();
    return log?.drops === logCreated ? acked : undefined;
  };
}

const bindingOf = ({ scripts, fenced, nats }: Handles) => ({
  identity: createServerIdentity(scripts, fenced),
  eventLog: new EventLog(nats),
});

/**
 * Resolves to the name of the Redis that the log belongs to.
 *
 * @throws ConfigError if that is another one
 */
export const openRedisOfLog = (handles: Handles, { mayBind }: { readonly mayBind: boolean }) =>
  findRedisOfLog({ ...bindingOf(handles), mayBind });

/** @throws ConfigError if the log belongs to another Redis */
export const checkBelonging = (handles: Handles): Promise<void> => checkRedisOfLog(bindingOf(handles));

/** Resolves to true while the upstreams lack drops or follows of the log, as the process in charge has found. */
export const areUpstreamsBehind = async ({ scripts, fenced }: Omit<Handles, "nats">): Promise<boolean> =>
  (await createServerIdentity(scripts, fenced).read()).log?.behind !== undefined;
