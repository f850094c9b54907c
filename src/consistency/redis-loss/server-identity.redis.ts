import { serverIdentityKey } from "../../contracts/keys.js";
import { type Scripts, script } from "../../platform/redis/scripts.js";
import type { Fenced } from "../../records/fenced.redis.js";
import type { IdentityRecord, LogState, ServerIdentity } from "./loss-detector.js";

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
