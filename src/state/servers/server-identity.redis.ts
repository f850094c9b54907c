import type { Affected, HeldDrop } from "../../contracts/timelines.js";
import { type Scripts, script } from "../../platform/redis/scripts.js";
import type { Fenced } from "../fenced.redis.js";
import type { EdgeChange } from "../fences/types.js";
import { serverIdentityKey } from "../keys.js";

/** Pages are degraded by this mark: it has some of the drops and edges that the upstreams do not know any more. */
export interface Behind {
  readonly drops: readonly HeldDrop[];
  readonly edges: readonly EdgeChange[];
}

/** The state tells the streams of events and jobs from others, and how far they go. */
export interface LogState {
  /** When `DROPS` and `FANOUT` were created; "" for a stream that is missing. */
  readonly drops: string;
  readonly fanout: string;
  /** The last sequence of `DROPS` never falls, unless the stream was restored from an older copy. */
  readonly last: number;
  /** The last sequence of `FANOUT` is not in records of earlier versions. */
  readonly lastJob?: number;
  readonly setAside?: readonly SetAside[];
  /** The log belongs to the Redis of this name: see binding.ts. */
  readonly redis?: string | undefined;
  /** Where this is unset, the upstreams know what the log holds. */
  readonly behind?: Behind | undefined;
}

/** Events that a recovery could not apply are at the end of the log again, up to this sequence and time. */
export interface SetAside extends Affected {
  readonly seq: number;
  /** The time is in ms since the epoch. */
  readonly at: number;
}

export interface Backlog {
  /** Events admitted from then on may not have been applied yet, in ms since the epoch. */
  readonly start: number;
  /** All consumers of `DROPS` have acknowledged everything up to this sequence. */
  readonly acked: number;
}

export interface IdentityRecord {
  /**
   * `other` means that another server wrote the record, or this one before it restarted; `none`, that there is no
   * record.
   */
  readonly redis: "same" | "other" | "none";
  readonly from: number;
  readonly log: LogState | undefined;
  readonly acked: number;
}

export interface ServerIdentity {
  read(): Promise<IdentityRecord>;
  /** Changes nothing in a Redis that may have lost data, until everything lost is applied again (`recovered`). */
  record(of: { readonly backlog: Backlog; readonly log: LogState; readonly recovered: boolean }): Promise<void>;
}

const RECORD_SERVER = script("record-server", import.meta.url);

/** The number of records is so large that each node of a Redis Cluster holds some; hash tags spread them. */
const PARTS_OF_A_CLUSTER = 64;

export function createServerIdentity(scripts: Scripts, fenced: Fenced): ServerIdentity {
  const parts = Array.from({ length: scripts.clusters * PARTS_OF_A_CLUSTER || 1 }, (_, part) =>
    serverIdentityKey(part),
  );
  const run = (from: number | "", state: string, recovered: boolean): Promise<Reply[]> =>
    Promise.all(
      parts.map((key) => fenced.one(RECORD_SERVER, [key], [from, recovered ? "1" : "0", state]) as Promise<Reply>),
    );
  return {
    async read() {
      return combined(await run("", "", false));
    },
    async record({ backlog: { start, acked }, log, recovered }) {
      await run(start, JSON.stringify({ ...log, acked }), recovered);
    },
  };
}

type Reply = readonly [redis: IdentityRecord["redis"], from: string, state: string];

/** One part of another server stands for the whole, and so does the oldest part. */
function combined(replies: readonly Reply[]): IdentityRecord {
  const held = replies.filter(([redis]) => redis !== "none");
  const other = held.some(([redis]) => redis === "other");
  const states = held.flatMap(([, , text]) => (text === "" ? [] : [JSON.parse(text) as LogState & { acked: number }]));
  states.sort((one, two) => one.last - two.last);
  return {
    redis: held.length === 0 ? "none" : other ? "other" : "same",
    from: Math.min(...held.map(([, from]) => Number(from))),
    log: states[0],
    // A lost part does not show how far its own writes were applied.
    acked: states.length < replies.length ? 0 : Math.min(...states.map(({ acked }) => acked)),
  };
}
