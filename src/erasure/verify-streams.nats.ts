import { type NatsConnection, RetentionPolicy } from "nats";
import { ALL_NOTIFY_PARTS } from "../contracts/notify-parts.js";
import type { Person } from "../contracts/people.js";
import { STREAM } from "../contracts/subjects.js";
import { askNats, managerOf, unlessAbsent } from "../platform/nats/ask.js";
import { createStoredMessages } from "../platform/nats/message.js";
import type { LogEntry } from "../platform/nats/read-log.js";
import { messageNames, messagesIn } from "./messages.nats.js";
import type { Places } from "./places.js";

const NOTIFY_STREAMS = ALL_NOTIFY_PARTS.map(({ stream }) => stream);

const MAY_STAY: Readonly<Record<string, string>> = {
  [STREAM.drops]: "the log, until its age",
  [STREAM.completions]: "the log of completions, until its age",
  [STREAM.activity]: "the log of activity, until its age",
  [STREAM.erased]: "the marker that refuses the id, or its lift",
};

const MENTIONED = { count: 1, mayStay: false, why: "a dead letter that has the id somewhere" } as const;

/** Headers by which servers and consumers know a message, or that say when and how it failed. */
const OF_THE_FAILURE =
  /^(?:nats-.*|traceparent|dlq-(?:reason|error-code|stream|stream-seq|consumer|deliveries|first-seen|failed-at|redrive-count|version|size))$/i;
/** The id of the same letters may be that of a drop, or a number. */
const BEFORE_OTHER_IDS =
  /(?:\b(?:drop_id|repost_of|created_at|updated_at|expires_at|revision|version|seq|visibility|producer)"?\s*[:=]\s*"?|\b(?:drop_created|drop_deleted|drop_edited|ap_drop_received):)$/;
const BEFORE_A_NAME = /[{,]\s*"$/;
const AFTER_A_NAME = /^"\s*:/;
const PART_OF_A_WORD = /[\p{L}\p{N}_-]/u;
const LONGEST_FIELD = 24;

/**
 * Looks at the characters of a dead letter as they were stored: the erasure reads its fields, and may not understand
 * them.
 */
function holdsId({ headers, body }: LogEntry, { user, token }: Person): boolean {
  const texts = [...headers.entries()].flatMap(([name, value]) => (OF_THE_FAILURE.test(name) ? [] : value));
  const json = JSON.stringify(user).slice(1, -1);
  const ascii = json.replaceAll(
    /[^ -~]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  const forms = new Set([user, token, json, ascii, json.replaceAll("/", "\\/")]);
  return [Buffer.from(body).toString(), ...texts].some((text) => [...forms].some((form) => isWordOf(text, form)));
}

function isWordOf(text: string, form: string): boolean {
  for (let index = text.indexOf(form); index >= 0; index = text.indexOf(form, index + 1)) {
    const [before, after] = [text[index - 1] ?? "", text[index + form.length] ?? ""];
    if (PART_OF_A_WORD.test(before) || PART_OF_A_WORD.test(after)) continue;
    const [start, end] = [text.slice(Math.max(0, index - LONGEST_FIELD), index), text.slice(index + form.length)];
    const isName = BEFORE_A_NAME.test(start) && AFTER_A_NAME.test(end);
    if (!isName && !BEFORE_OTHER_IDS.test(start)) return true;
  }
  return false;
}

export async function verifyStreams(
  nats: NatsConnection,
  person: Person,
  places: Places,
  checked: (stream: string, messages: number) => void,
): Promise<void> {
  const stored = createStoredMessages(nats);
  for (const stream of new Set([...Object.values(STREAM), ...NOTIFY_STREAMS])) {
    const info = await askNats(`looking at ${stream}`, async () =>
      unlessAbsent((await managerOf(nats)).streams.info(stream), "stream"),
    );
    if (info === undefined) continue;
    const isQueue = info.config.retention === RetentionPolicy.Workqueue;
    const may = MAY_STAY[stream];
    const why = may ?? (isQueue ? "work that is void: its consumer removes it soon" : "messages that name the user");
    let count = 0;
    for await (const message of isQueue ? stored.each(stream, ">", 1) : messagesIn(nats, stream)) {
      if (messageNames(message, person))
        places.add({ server: "NATS", place: stream, count: 1, mayStay: may !== undefined, why });
      else if (stream === STREAM.dlq && holdsId(message, person))
        places.add({ server: "NATS", place: stream, example: `dlq show ${message.seq}`, ...MENTIONED });
      checked(stream, ++count);
    }
  }
}
