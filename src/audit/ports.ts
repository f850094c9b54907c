/** A drop of a timeline; its score is when it was created, in ms since the epoch. */
export interface Entry {
  readonly drop: string;
  readonly score: number;
}

/** What a stored home timeline holds. */
export interface Home {
  /** Down to when it says that it is complete, in ms since the epoch; 0: from the start. */
  readonly floor: number;
  readonly entries: readonly Entry[];
}

/** Everything an audit works with. */
export interface AuditDeps {
  /** Undefined where nothing says that it is complete: the next read rebuilds it. */
  readonly readHome: (user: string) => Promise<Home | undefined>;
  /** The newest `count` drops of a home created after `floor`, newest first, by the upstreams. Times in ms since the epoch. */
  readonly readExpected: (
    user: string,
    of: { floor: number; count: number; deadline: number },
  ) => Promise<readonly Entry[]>;
  readonly deadAmong: (drops: readonly string[]) => Promise<ReadonlySet<string>>;
  /** From when on admitted events may not have been applied by now, in ms since the epoch. */
  readonly readBacklogStart: () => Promise<number>;
  /** Rebuilds a home timeline from the upstreams. */
  readonly rebuild: (user: string) => Promise<void>;
  /** Drops a stored timeline holds at most. */
  readonly maxEntries: number;
  /** What is younger than this, in ms, is not judged. */
  readonly settleMs: number;
}

/** A right that one process holds for a bounded time. */
export interface Lease {
  /** Takes or keeps it; false where another process has it. */
  hold(): Promise<boolean>;
  release(): Promise<void>;
}
