import type { Gate } from "../delivery/gate.js";
import type { Logger } from "../kernel/logger.js";
import type { Db } from "../platform/db/db.js";
import type { Service } from "../platform/grpc/serve.js";
import type { Config } from "./config/config.js";
import type { Connections } from "./connections.js";

/** A role that runs. */
export interface RunningRole {
  /** What it serves over gRPC. */
  readonly services?: readonly Service[];
  /** What it waits for, in words; undefined where it is ready. */
  notReady(): string | undefined;
  close(graceMs: number): Promise<void>;
}

/** What roles are started with. */
export interface RoleDeps {
  readonly config: Config;
  readonly connections: Connections;
  /** Of the whole process: a crash takes all its consumers along. */
  readonly gate: Gate;
  readonly log: Logger;
}

/** What the roles that keep data of their own are started with. */
export interface StoringRoleDeps extends RoleDeps {
  readonly db: Db;
}
