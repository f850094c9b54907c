/** A job of BullMQ. */
export interface DropJob {
  readonly drop_id: string;
  readonly created_at: number;
  readonly users: readonly string[];
}

/** A job writes its homes by one call of a script, or by commands of a pipeline. */
export type PeerKind = "script" | "commands";

/** The first message to a worker process. */
export interface QueueOrder {
  readonly by: PeerKind;
  readonly port: number;
  readonly queue: string;
  /** Jobs at once, in each process. */
  readonly concurrency: number;
  readonly prefix: string;
  /** Cap of a home, and the size it is trimmed to. */
  readonly entries: number;
  readonly trimTo: number;
}

/** The first message to the bare loop. */
export interface BareQueueOrder extends Omit<QueueOrder, "by" | "queue" | "concurrency"> {
  readonly natsUrl: string;
  /** The name of its consumer, too. */
  readonly stream: string;
  /** Followers by author. */
  readonly audiences: readonly (readonly string[])[];
}

/** Number of jobs or drops that a worker process has completed since it began. */
export type QueueAnswer = { readonly completed: number } | { readonly fault: string };
