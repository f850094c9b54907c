import type { NatsConnection } from "nats";
import { messageIdNames, namesPerson, type Person, parsedJson, subjectNames } from "../contracts/people.js";
import { ERASED_EVENT, type ErasedNotification } from "../contracts/stream-events.js";
import { bucketPrefix, DLQ_HEADER, notifySubject, STREAM } from "../contracts/subjects.js";
import { mapLimited } from "../kernel/concurrency.js";
import { encodeId, fingerprint } from "../kernel/ids.js";
import { askNats, managerOf } from "../platform/nats/ask.js";
import { presentParts } from "../platform/nats/notify-streams.js";
import type { Publish } from "../platform/nats/publish.js";
import { type LogEntry, logEntries } from "../platform/nats/read-log.js";
import { createRemovals } from "../platform/nats/remove-messages.js";
import { idsIn, isBroken, type State } from "../state/index.js";
import { traceHeaders } from "../telemetry/spans.js";

/** Bounds memory: a body may be as large as a message. */
const BATCH = 100;
const NOTIFIED_AT_ONCE = 32;

type Message = Pick<LogEntry, "subject" | "headers" | "body">;

/** Tells whether a message is for the user, or names them in its headers or its JSON. */
export function messageNames({ subject, headers, body }: Message, person: Person): boolean {
  if (subjectNames(subject, person) || subjectNames(headers.get(DLQ_HEADER.subject) ?? "", person)) return true;
  const ids = [headers.get("Nats-Msg-Id"), headers.get(DLQ_HEADER.msgId)];
  return ids.some((id) => id !== undefined && messageIdNames(id, person)) || namesPerson(parsedJson(body), person);
}

/** A dead letter that is no JSON, or was refused or cut, may have the id anywhere. */
function isBrokenLetterOf({ subject, headers, body }: Message, people: readonly Person[]): boolean {
  if (!subject.startsWith("dlq.") || !isBroken(headers.get(DLQ_HEADER.reason) ?? subject.split(".")[1], body))
    return false;
  const ids = idsIn(body);
  return people.some(({ user, token }) => ids.has(user) || ids.has(token));
}

export const messagesIn = (nats: NatsConnection, stream: string): AsyncIterable<LogEntry> =>
  logEntries(nats, { stream, subject: ">", batch: BATCH });

/** Logs and queues are left: what they hold about the user is void. */
const CLEANED = [STREAM.dlq, STREAM.checks, STREAM.shared];

export function createMessages(nats: NatsConnection, publish: Publish, notifyUser: State["streams"]["notifyUser"]) {
  const removals = createRemovals(nats);
  return {
    resetStreams: async (users: readonly string[], erased: readonly Person[]): Promise<void> => {
      const reset = { event: "reset", reason: "user_erased" } as const;
      // The id does not tell who is erased: it is stored for a while.
      const tokens = erased.map(({ token }) => token).sort();
      const id = `reset:${fingerprint(`erased:${tokens.join()}`)}:`;
      await mapLimited(users, NOTIFIED_AT_ONCE, (user) => notifyUser(user, reset, id + encodeId(user)));
    },
    endStreams: async ({ user, token }: Person): Promise<void> => {
      const body: ErasedNotification = { event: ERASED_EVENT };
      const headers = traceHeaders();
      await publish({ subject: notifySubject(user), body: JSON.stringify(body), id: `erased:${token}`, headers });
    },
    removeMessages: async (people: readonly Person[], stopping: AbortSignal): Promise<void> => {
      const parts = (await presentParts(nats)).map(({ part }) => part);
      const positions = { stream: STREAM.positions, subject: (token: string) => bucketPrefix("POSITIONS") + token };
      for (const { token } of people)
        for (const { stream, subject } of [...parts, positions])
          await askNats("purging what is stored for a user", async () =>
            (await managerOf(nats)).streams.purge(stream, { filter: subject(token) }),
          );
      const isWanted = (message: LogEntry): boolean =>
        people.some((person) => messageNames(message, person)) || isBrokenLetterOf(message, people);
      for (const stream of [...CLEANED, ...parts.map((part) => part.stream)])
        await removals.fromLog({ stream, subject: ">", batch: BATCH, isWanted, stopping });
    },
  };
}
