import type { NatsConnection } from "nats";
import { eventOfSubject, parseEvent, SUBJECT_OF } from "../contracts/events.js";
import { STREAM } from "../contracts/subjects.js";
import { compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import { MAX_AHEAD_MS } from "../contracts/times.js";
import { DAY, HOUR, MINUTE } from "../kernel/time.js";
import { readLog } from "../platform/nats/read-log.js";
import type { ReadSharedLog, Snapshot } from "./ports.js";

/** How far back the log is read, until enough is found. */
const REACHES_MS = [HOUR, 6 * HOUR, DAY, 8 * DAY];
/** An audit reads little of a busy log, and judges what that covers. */
export const AUDIT_REACHES_MS = [10 * MINUTE, ...REACHES_MS];

/**
 * Reads the local or global timeline out of the log. What was admitted since
 * some time holds every drop created more than {@link MAX_AHEAD_MS} after it,
 * since none may be dated further ahead than that.
 */
export function createReadSharedLog(
  connection: NatsConnection,
  maxEntries: number,
  reachesMs: readonly number[] = REACHES_MS,
): ReadSharedLog {
  return async (name) => {
    for (const reach of reachesMs) {
      const snapshot = await readSince(connection, name, { from: Date.now() - reach, maxEntries });
      if (snapshot.entries.length >= maxEntries || reach === reachesMs.at(-1)) return snapshot;
    }
    throw new Error("unreachable: the last reach returns");
  };
}

async function readSince(
  connection: NatsConnection,
  name: "local" | "global",
  { from, maxEntries }: { from: number; maxEntries: number },
): Promise<Snapshot> {
  const { state } = await (await connection.jetstreamManager()).streams.info(STREAM.drops);
  const wholeLog = state.first_seq <= 1 && (state.messages === 0 || Date.parse(String(state.first_ts)) >= from);
  const found = new Map<string, number>();
  const subjects = [SUBJECT_OF.drop_created, ...(name === "global" ? [SUBJECT_OF.ap_drop_received] : [])];
  for (const subject of subjects) {
    await readLog(connection, { stream: STREAM.drops, subject, from }, (entry) => {
      const drop = publicDrop(entry.subject, entry.body, entry.time);
      if (drop) found.set(drop.drop, Math.min(drop.score, found.get(drop.drop) ?? drop.score));
    });
  }
  const entries = [...found].map(([drop, score]) => ({ drop, score })).sort((a, b) => compareEntries(b, a));
  const beyond = entries[maxEntries];
  const since = Math.max(from, state.messages === 0 ? Date.now() : Date.parse(String(state.first_ts)));
  const covered = wholeLog ? 0 : Math.max(1, since + MAX_AHEAD_MS);
  return {
    entries: entries.slice(0, maxEntries),
    floor: Math.max(covered, beyond ? Math.max(1, beyond.score) : 0),
  };
}

function publicDrop(subject: string, body: Uint8Array, time: number): TimelineEntry | undefined {
  try {
    const event = parseEvent(eventOfSubject(subject), body, time);
    if (event.name !== "drop_created" && event.name !== "ap_drop_received") return undefined;
    if (event.payload.visibility !== "public") return undefined;
    return { drop: event.payload.drop_id, score: event.payload.created_at };
  } catch {
    // What is not understood here was dead-lettered when it was planned.
    return undefined;
  }
}
