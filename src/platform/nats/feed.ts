import { checkJsError, ErrorCode, Events, type Msg, type NatsConnection } from "nats";
import pLimit from "p-limit";
import { AppError } from "../../kernel/errors.js";
import { coalesce } from "../../kernel/sharing.js";
import { pause, SECOND } from "../../kernel/time.js";
import { ABSENT, askNats, managerOf, unlessAbsent } from "./ask.js";
import { Incarnation } from "./incarnation.js";
import { headOf } from "./wire.js";

export interface SubjectMessage {
  readonly seq: number;
  readonly previous?: number | undefined;
  /** The server says this time in the format of RFC 3339. */
  readonly storedAt?: string | undefined;
  header(name: string): string | undefined;
  readonly body: Uint8Array;
  /** Name of the stream of a live message, if that is another one: the sequence counts in it. */
  readonly otherStream?: string | undefined;
}

interface StreamState {
  readonly createdAt: number;
  /** One more than `lastSeq` if everything aged out. */
  readonly firstSeq: number;
  readonly lastSeq: number;
  readonly perSubject: number;
}

export type SubjectFeed = ReturnType<typeof createSubjectFeed>;

/** A storm of resumes must not swamp the server. */
const READS_AT_ONCE = 128;
const TIMEOUT_MS = 5 * SECOND;

type Take = (message: SubjectMessage) => void;

/** `onGap` is called if messages may have been missed. Everything rejects with AppError `unavailable`. */
export function createSubjectFeed(connection: NatsConnection, stream: string, onGap: () => void) {
  const limit = pLimit(READS_AT_ONCE);
  const incarnation = new Incarnation({ ask: () => state(), onGap });
  let newest: { readonly at: number; readonly state: StreamState } | undefined;
  const link = watchLink(connection, stream, incarnation);

  const state = coalesce(async (): Promise<StreamState> => {
    // A question that is lost with its link is given up after seconds, and holds up those after the reconnect.
    if (!link.connected) throw new AppError("unavailable", "NATS: the link is down");
    const answered = incarnation.answered();
    const askedAt = performance.now();
    const { state: streamState, config, created } = await (await managerOf(connection)).streams.info(stream);
    const createdAt = Date.parse(created);
    answered(createdAt);
    const perSubject = config.max_msgs_per_subject > 0 ? config.max_msgs_per_subject : Number.POSITIVE_INFINITY;
    newest = {
      at: askedAt,
      state: { createdAt, firstSeq: streamState.first_seq, lastSeq: streamState.last_seq, perSubject },
    };
    return newest.state;
  });

  // Servers know `next_by_subj` since 2.9; the client's types do not.
  const fromLeader = async (query: {
    readonly seq: number;
    readonly next_by_subj: string;
  }): Promise<SubjectMessage | undefined> => {
    const { streams } = await managerOf(connection);
    const stored = await unlessAbsent(streams.getMessage(stream, query), "message", "stream");
    if (!stored) return undefined;
    const { seq, time, header, data: body } = stored;
    return { seq, storedAt: time.toISOString(), header: (name) => header?.get(name) || undefined, body };
  };
  const lastOf = (subject: string): Promise<number> => readLast(connection, stream, subject);

  // Any replica answers a direct get, also one that lags: only the leader knows the end.
  const read = async (subject: string, after: number, take: (message: SubjectMessage) => boolean): Promise<void> => {
    let position = after;
    for (;;) {
      const message = await directGet(connection, stream, { seq: position + 1, next_by_subj: subject });
      if (!message) break;
      position = message.seq;
      if (!take(message)) return;
    }
    const last = await lastOf(subject);
    while (position < last) {
      const message = await fromLeader({ seq: position + 1, next_by_subj: subject });
      if (!message || !take(message)) return;
      position = message.seq;
    }
  };

  const ask = <T>(question: () => Promise<T>): Promise<T> => askNats(`messages of ${stream}`, () => limit(question));

  return {
    follow: (subject: string, take: Take): (() => void) => followSubject(connection, { subject, stream }, take),
    /** Resolves when the server has taken every subscription made before the call. */
    flushed: coalesce(() => askNats("a flush", () => flushed(connection))),
    /** The state is read now, or was read at most `maxAgeMs` ago. */
    state: async (maxAgeMs = 0): Promise<StreamState> => {
      const isFresh =
        newest && newest.at > performance.now() - maxAgeMs && newest.state.createdAt === incarnation.current;
      return newest && isFresh ? newest.state : askNats(`the state of ${stream}`, state);
    },
    /** Returns when the stream of live messages was created, in ms since the epoch; undefined while it may be another. */
    current: (): number | undefined => incarnation.current,
    /** The leader answers; undefined stands for a subject without messages. */
    oldestOf: (subject: string) => ask(async () => (await fromLeader({ seq: 1, next_by_subj: subject }))?.seq),
    lastOf: (subject: string) => ask(() => lastOf(subject)),
    /** Passes messages on oldest first, from after `after` to the leader's last, as long as `take` returns true. */
    read: (...range: Parameters<typeof read>) => ask(() => read(...range)),
    connected: (): boolean => link.connected && !connection.isClosed(),
    close: (): void => link.close(),
  };
}

/** Returns the sequence of the last message of a subject, by the leader; 0 if there is none. */
export const lastSequence = (connection: NatsConnection, stream: string, subject: string): Promise<number> =>
  askNats(`messages of ${stream}`, () => readLast(connection, stream, subject));

// The manager throws an error if there is no message, which is the answer to most heartbeats: 20 of 44 µs.
async function readLast(connection: NatsConnection, stream: string, subject: string): Promise<number> {
  const query = JSON.stringify({ last_by_subj: subject });
  const answer = await connection.request(`$JS.API.STREAM.MSG.GET.${stream}`, query, { timeout: TIMEOUT_MS });
  const { message, error } = answer.json<LastAnswer>();
  if (error && error.err_code !== ABSENT.message && error.err_code !== ABSENT.stream)
    throw new Error(error.description);
  return message?.seq ?? 0;
}

interface LastAnswer {
  readonly message?: { readonly seq: number };
  readonly error?: { readonly err_code: number; readonly description: string };
}

/** ADR-31 describes this; the client's types do not offer it. */
async function directGet(
  connection: NatsConnection,
  stream: string,
  query: object,
): Promise<SubjectMessage | undefined> {
  const options = { timeout: TIMEOUT_MS };
  const answer = await connection.request(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(query), options);
  const error = checkJsError(answer);
  if (error?.code === ErrorCode.JetStream404NoMessages) return undefined;
  if (error) throw error;
  const message = messageOf(answer);
  if (!message) throw new Error("an answer without a sequence");
  return message;
}

/** The server appends its headers to the publisher's: the last ones count. */
function messageOf({ headers, data: body }: Msg): SubjectMessage | undefined {
  const seq = numberIn(headers?.last("Nats-Sequence"));
  if (seq === undefined) return undefined;
  return {
    seq,
    storedAt: headers?.last("Nats-Time-Stamp") || undefined,
    header: (name) => headers?.get(name) || undefined,
    body,
  };
}

/** Begins the server's headers, which it appends to the publisher's. */
const SERVER_LINES = "\r\nNats-Stream: ";
const LINE = { seq: "\r\nNats-Sequence: ", previous: "\r\nNats-Last-Sequence: ", stamp: "\r\nNats-Time-Stamp: " };

/** The client takes 10 µs to read all headers into a map. */
function liveMessageOf(message: Msg, ownLine: string): SubjectMessage | undefined {
  const head = headOf(message);
  const serverLines = head.lastIndexOf(SERVER_LINES);
  const seq = serverLines < 0 ? undefined : numberIn(valueIn(head, LINE.seq, serverLines));
  if (seq === undefined) return undefined;
  return {
    seq,
    previous: numberIn(valueIn(head, LINE.previous, serverLines)),
    storedAt: valueIn(head, LINE.stamp, serverLines),
    body: message.data,
    header: (name) => valueIn(head, `\r\n${name}: `, 0),
    otherStream: head.startsWith(ownLine, serverLines) ? undefined : valueIn(head, SERVER_LINES, serverLines),
  };
}

function valueIn(head: string, line: string, from: number): string | undefined {
  const index = head.indexOf(line, from);
  return index < 0 ? undefined : head.slice(index + line.length, head.indexOf("\r\n", index + line.length));
}

function followSubject(
  connection: NatsConnection,
  { subject, stream }: { readonly subject: string; readonly stream: string },
  take: Take,
): () => void {
  const ownLine = `${SERVER_LINES}${stream}\r\n`;
  const subscription = connection.subscribe(subject, {
    callback: (error, message) => {
      // The permission was withdrawn; heartbeats go on reading the stream itself.
      if (error) return;
      const heard = liveMessageOf(message, ownLine);
      if (heard) take(heard);
    },
  });
  return () => {
    if (!connection.isClosed()) subscription.unsubscribe();
  };
}

const numberIn = (text: string | undefined): number | undefined =>
  text && /^\d+$/.test(text) ? Number(text) : undefined;

async function flushed(connection: NatsConnection): Promise<void> {
  const silence = pause(TIMEOUT_MS).then(() => Promise.reject(new Error("no answer")));
  await Promise.race([connection.flush(), silence]);
}

function watchLink(connection: NatsConnection, stream: string, incarnation: Incarnation) {
  let connected = true;
  const deletions = connection.subscribe(`$JS.EVENT.ADVISORY.STREAM.DELETED.${stream}`, {
    callback: (error) => void (error || incarnation.suspect()),
  });
  void (async () => {
    for await (const { type } of connection.status()) {
      if (type === Events.Disconnect) connected = false;
      if (type === Events.Reconnect) connected = true;
      if (type === Events.Disconnect || type === Events.Reconnect) incarnation.suspect();
    }
  })();
  return {
    get connected(): boolean {
      return connected;
    },
    close: (): void => {
      incarnation.close();
      if (!connection.isClosed()) deletions.unsubscribe();
    },
  };
}
