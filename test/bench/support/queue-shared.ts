/** A job of BullMQ. */
export interface DropJob {
  readonly drop_id: string;
  readonly created_at: number;
  readonly users: readonly string[];
}

/** The first message to a worker process. */
export interface QueueOrder {
  readonly port: number;
  readonly queue: string;
  /** Jobs at once, in each process. */
  readonly concurrency: number;
  readonly prefix: string;
  /** Cap of a home, and the size it is trimmed to. */
  readonly entries: number;
  readonly trimTo: number;
}

/** Number of jobs a worker process has completed since it began. */
export type QueueAnswer = { readonly completed: number } | { readonly fault: string };
