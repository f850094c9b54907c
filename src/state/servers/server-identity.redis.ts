import type { Affected, HeldDrop } from "../../contracts/timelines.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Fenced } from "../fenced.redis.js";
import type { EdgeChange } from "../fences/types.js";
import { serverIdentityKey } from "../keys.js";
import { script } from "../scripts.redis.js";

/** Some drops and edges that the upstreams do not know any more. While it is set, pages are degraded. */
export interface Behind {
  readonly drops: readonly HeldDrop[];
  readonly edges: readonly EdgeChange[];
}

/** State of the log. It tells the streams of events and jobs from others, and how far they go. */
export interface LogState {
  /** Creation times of `DROPS` and `FANOUT`; "" for a stream that is missing. */
  readonly drops: string;
  readonly fanout: string;
  /** Last sequence of `DROPS`. It never falls, unless the stream was restored from an older copy. */
  readonly last: number;
  /** Last sequence of `FANOUT`. Records of earlier versions do not have it. */
  readonly lastJob?: number;
  readonly setAside?: readonly SetAside[];
  /** Name of the Redis to which the log belongs: see binding.ts. */
  readonly redis?: string | undefined;
  /** Undefined: the upstreams know what the log holds. */
  readonly behind?: Behind | undefined;
}

/** Events that a recovery could not apply. They are at the end of the log again, up to this sequence and time. */
export interface SetAside extends Affected {
  readonly seq: number;
  /** Time, in ms since the epoch. */
  readonly at: number;
}

export interface Backlog {
  /** Events admitted from this time on may not have been applied yet, in ms since the epoch. */
  readonly start: number;
  /** All consumers of `DROPS` have acknowledged everything up to this sequence. */
  readonly acked: number;
}

export interface IdentityRecord {
  /** `other`: another server wrote the record, or this one before it restarted; `none`: there is no record. */
  readonly redis: "same" | "other" | "none";
  readonly from: number;
  readonly log: LogState | undefined;
  readonly acked: number;
}

export interface ServerIdentity {
  read(): Promise<IdentityRecord>;
  /**
   * Writes the record. In a Redis that may have lost data it changes nothing, until all lost events are applied again
   * (`recovered`).
   */
  record(state: { readonly backlog: Backlog; readonly log: LogState; readonly recovered: boolean }): Promise<void>;
}

const RECORD_SERVER = script("record-server", import.meta.url);

/** Number of records, large enough that each node of a Redis Cluster holds some; hash tags spread them. */
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

/** Combines the records. One part of another server stands for the whole, and so does the oldest part. */
function combined(replies: readonly Reply[]): IdentityRecord {
  const records = replies.filter(([redis]) => redis !== "none");
  const other = records.some(([redis]) => redis === "other");
  const states = records.flatMap(([, , text]) =>
    text === "" ? [] : [JSON.parse(text) as LogState & { acked: number }],
  );
  states.sort((a, b) => a.last - b.last);
  return {
    redis: records.length === 0 ? "none" : other ? "other" : "same",
    from: Math.min(...records.map(([, from]) => Number(from))),
    log: states[0],
    // A lost part does not show how far its own writes were applied.
    acked: states.length < replies.length ? 0 : Math.min(...states.map(({ acked }) => acked)),
  };
}
