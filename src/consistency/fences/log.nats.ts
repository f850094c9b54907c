import type { NatsConnection } from "nats";
import { eventOfSubject, parseEvent, SUBJECT_OF } from "../../contracts/events.js";
import { STREAM } from "../../contracts/subjects.js";
import { readLog } from "../../platform/nats/read-log.js";
import type { ReadHistory } from "./ports.js";

/** Reads deletions and edge changes from the log. What is not understood there is dead-lettered elsewhere. */
export function createReadHistory(connection: NatsConnection): ReadHistory {
  return async (take) => {
    for (const subject of [SUBJECT_OF.drop_deleted, "graph.*"]) {
      await readLog(connection, { stream: STREAM.drops, subject }, async (entry) => {
        let event: ReturnType<typeof parseEvent>;
        try {
          event = parseEvent(eventOfSubject(entry.subject), entry.body, entry.time);
        } catch {
          return;
        }
        await take(event, entry.time);
      });
    }
  };
}
