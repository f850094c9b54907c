import { continuityKey } from "../../contracts/keys.js";
import type { Fenced } from "../../platform/redis/fenced.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Continuity, HeldNote, LogMark } from "./ports.js";

/** So many notes are spread over a cluster by their hash tags, that every node holds some of them. */
const PARTS_OF_A_CLUSTER = 64;

/** Notes on each node of Redis which server it is. */
export function createContinuity(scripts: Scripts, fenced: Fenced): Continuity {
  const parts = Array.from({ length: scripts.isCluster ? PARTS_OF_A_CLUSTER : 1 }, (_, part) => continuityKey(part));
  const run = (from: number | "", streams: string, mended: boolean): Promise<Reply[]> =>
    Promise.all(
      parts.map((key) => fenced.one("note-server", [key], [from, mended ? "1" : "0", streams]) as Promise<Reply>),
    );
  return {
    async read() {
      return combined(await run("", "", false));
    },
    async note({ backlog: { start, acked }, log, mended }) {
      await run(start, JSON.stringify({ ...log, acked }), mended);
    },
  };
}

type Reply = readonly [state: HeldNote["redis"], from: string, streams: string];

/** The whole is broken where one part is, and as old as the oldest part. */
function combined(replies: readonly Reply[]): HeldNote {
  const held = replies.filter(([state]) => state !== "new");
  const broken = held.some(([state]) => state === "broken");
  const streams = held.flatMap(([, , text]) => (text === "" ? [] : [JSON.parse(text) as LogMark & { acked: number }]));
  streams.sort((one, other) => one.last - other.last);
  return {
    redis: held.length === 0 ? "new" : broken ? "broken" : "same",
    from: Math.min(...held.map(([, from]) => Number(from))),
    log: streams[0],
    // A part that was lost cannot say how far its own writes went.
    acked: streams.length < replies.length ? 0 : Math.min(...streams.map(({ acked }) => acked)),
  };
}
