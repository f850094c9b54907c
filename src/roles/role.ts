import type { PublicationChecks } from "../consistency/index.js";
import type { Handler, Process, ProcessBatch } from "../delivery/handler.js";
import type { SuspectLock } from "../delivery/process.js";
import type { GatewayLimits } from "../gateway/index.js";
import type { Logger } from "../kernel/logger.js";
import type { Db } from "../platform/db/db.js";
import type { Service } from "../platform/grpc/unary.js";
import type { ReadBounds } from "../reads/index.js";
import type { StateWraps } from "../state/index.js";
import type { Config } from "./config/config.js";
import type { ServiceConnections } from "./connections.js";

export interface RunningRole {
  /** Services that are served over gRPC. */
  readonly services?: readonly Service[];
  /** Returns the reason if the role is not ready. */
  notReady(): string | undefined;
  close(graceMs: number): Promise<void>;
}

/** Tests replace these constants in a whole process. One that is unset is used as it is. */
export interface Limits {
  readonly reads?: Partial<ReadBounds>;
  readonly gateway?: Partial<GatewayLimits>;
  readonly publicationChecks?: Partial<PublicationChecks>;
  readonly recentReadersMs?: number;
  readonly restRate?: number;
  readonly concurrency?: number;
  readonly analysesAtOnce?: number;
}

/** Wraps parts of a process, for the sandbox and for the mutants of the fault suite. Unset: a part is used as it is. */
export interface Wraps {
  readonly service?: (usual: Service) => Service;
  readonly connections?: (usual: ServiceConnections) => ServiceConnections;
  readonly state?: StateWraps;
  readonly handler?: (usual: Handler) => Handler;
  readonly process?: (usual: Process) => Process;
  readonly batch?: (usual: ProcessBatch) => ProcessBatch;
  readonly limits?: Limits;
}

export interface RoleDeps {
  readonly config: Config;
  readonly connections: ServiceConnections;
  /** One a process: a crash ends all its consumers. */
  readonly suspectLock: SuspectLock;
  readonly exportsTraces: boolean;
  readonly wraps?: Wraps;
  readonly log: Logger;
}

/** Roles that keep data of their own have a database. */
export interface StoringRoleDeps extends RoleDeps {
  readonly db: Db;
}
