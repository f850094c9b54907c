import { type NatsConnection, RetentionPolicy } from "nats";
import { ALL_NOTIFY_PARTS } from "../contracts/notify-parts.js";
import { STREAM } from "../contracts/subjects.js";
import { askNats, managerOf, unlessAbsent } from "../platform/nats/ask.js";
import { createStoredMessages } from "../platform/nats/message.js";
import { messageNames, messagesIn } from "./messages.nats.js";
import type { Places } from "./places.js";
import type { Person } from "./values.js";

const NOTIFY_STREAMS = ALL_NOTIFY_PARTS.map(({ stream }) => stream);

const MAY_STAY: Readonly<Record<string, string>> = {
  [STREAM.drops]: "the log, until its age",
  [STREAM.completions]: "the log of completions, until its age",
  [STREAM.erased]: "the marker that refuses the id",
};

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
      checked(stream, ++count);
    }
  }
}
