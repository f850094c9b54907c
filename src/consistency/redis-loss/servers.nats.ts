import type { NatsConnection } from "nats";
import type { RedisState } from "../../state/index.js";
import { EventLog } from "../log.nats.js";
import { checkRedisOfLog, findRedisOfLog } from "./binding.js";

interface Handles {
  readonly state: Pick<RedisState, "identity">;
  readonly nats: NatsConnection;
}

/**
 * Returns a function that reads the sequence up to which the log created at that time was applied; undefined for
 * another log.
 */
export const createReadAcked =
  ({ state }: Pick<Handles, "state">) =>
  async (logCreated: string): Promise<number | undefined> => {
    const { log, acked } = await state.identity.read();
    return log?.drops === logCreated ? acked : undefined;
  };

/**
 * Resolves to the name of the Redis that the log belongs to.
 *
 * @throws ConfigError if that is another one
 */
export const openRedisOfLog = ({ state, nats }: Handles, { mayBind }: { readonly mayBind: boolean }) =>
  findRedisOfLog({ identity: state.identity, eventLog: new EventLog(nats), mayBind });

/** @throws ConfigError if the log belongs to another Redis */
export const checkBelonging = ({ state, nats }: Handles): Promise<void> =>
  checkRedisOfLog({ identity: state.identity, eventLog: new EventLog(nats) });

/** Resolves to true while the upstreams lack drops or follows of the log, as the process in charge has found. */
export const areUpstreamsBehind = async ({ state }: Pick<Handles, "state">): Promise<boolean> =>
  (await state.identity.read()).log?.behind !== undefined;
