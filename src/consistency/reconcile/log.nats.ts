import type { NatsConnection } from "nats";
import { eventOfSubject, messageId, parseEvent, SUBJECT_OF } from "../../contracts/events.js";
import { SILENT_HEADER } from "../../contracts/silence.js";
import { STREAM } from "../../contracts/subjects.js";
import { inSpan, SpanKind, traceHeaders } from "../../delivery/traced.js";
import { codeOf } from "../../kernel/errors.js";
import type { Publish } from "../../platform/nats/publish.js";
import { readLog } from "../../platform/nats/read-log.js";
import type { Admit, ReadAdmitted } from "./ports.js";

/** Reads the log's message ids off its bodies: what was redriven has ids of its own. */
export function createReadAdmitted(nats: NatsConnection): ReadAdmitted {
  return ({ since, until }, take) =>
    readLog(nats, { stream: STREAM.drops, subject: ">", from: since, until }, ({ subject, body, time }) => {
      try {
        return take(messageId(parseEvent(eventOfSubject(subject), body, time)));
      } catch (error) {
        // Not admitted by a bridge; whoever put it there, it stands for nothing.
        if (codeOf(error) === "invalid") return true;
        throw error;
      }
    });
}

/** Admits as a bridge does, under the same id. */
export function createAdmit(publish: Publish): Admit {
  return (event, silent) =>
    inSpan(`reconcile ${event.name}`, { kind: SpanKind.PRODUCER }, async () => {
      await publish({
        subject: SUBJECT_OF[event.name],
        id: messageId(event),
        body: Buffer.from(JSON.stringify(event.payload)),
        headers: { ...traceHeaders(), ...(silent ? { [SILENT_HEADER]: "1" } : {}) },
      });
    });
}
