import type { EventEmitter } from "node:events";
import pg from "pg";
import type { Logger } from "../../kernel/logger.js";
import { isOfNoUse, SQLSTATE, sqlState } from "./errors.js";

/** PostgreSQL reports both when a connection opens, and with the answer after a change (since version 14). */
const READ_ONLY = ["in_hot_standby", "default_transaction_read_only"];

interface ParameterStatus {
  readonly parameterName: string;
  readonly parameterValue: string;
}

/** Knows from the reports of its server whether that takes writes. */
export class ReportingClient extends pg.Client {
  readonly #openedAt = performance.now();
  readonly #reported = new Map<string, string>();

  constructor(config?: string | pg.ClientConfig) {
    super(config);
    const { connection } = this as unknown as { readonly connection: EventEmitter };
    connection.on("parameterStatus", ({ parameterName, parameterValue }: ParameterStatus) => {
      this.#reported.set(parameterName, parameterValue);
    });
  }

  get ageMs(): number {
    return performance.now() - this.#openedAt;
  }

  get isReadOnly(): boolean {
    return READ_ONLY.some((name) => this.#reported.get(name) === "on");
  }
}

/** One borrowed connection. */
export interface Lent {
  query(query: pg.QueryConfig): Promise<pg.QueryResult>;
  /** True once the connection is of no use: nothing else is sent over it. */
  isBroken(): boolean;
}

interface PoolOptions {
  /** Another connection may lead to a server that takes writes. If none does, reads must not open one each. */
  readonly staysReadOnlyMs: number;
  /** A connection left the pool because its server takes no writes. */
  readonly leftReadOnly: () => void;
  readonly log: Logger;
}

/** Lends connections. One that is of no use any more leaves the pool. */
export function openPool(config: pg.PoolConfig, { staysReadOnlyMs, leftReadOnly, log }: PoolOptions) {
  const pool = new pg.Pool({ ...config, Client: ReportingClient });
  // The end of an idle connection would end the process if there were no listener.
  pool.on("error", (error) => log.debug({ error: error.message }, "an idle database connection ended"));
  return {
    async lend<Result>(work: (lent: Lent) => Promise<Result>): Promise<Result> {
      const client = (await pool.connect()) as pg.PoolClient & ReportingClient;
      let broken = false;
      let refusesWrites = false;
      const onError = (): void => {
        broken = true;
      };
      client.on("error", onError);
      const query = async (asked: pg.QueryConfig): Promise<pg.QueryResult> => {
        try {
          return await client.query(asked);
        } catch (error) {
          broken ||= isOfNoUse(error);
          refusesWrites ||= sqlState(error) === SQLSTATE.readOnly;
          throw error;
        }
      };
      try {
        return await work({ query, isBroken: () => broken });
      } finally {
        client.off("error", onError);
        refusesWrites ||= client.isReadOnly && client.ageMs > staysReadOnlyMs;
        client.release(broken || refusesWrites);
        if (refusesWrites) leftReadOnly();
      }
    },
    close: () => pool.end(),
  };
}
