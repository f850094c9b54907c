/**
 * Viewers of local and global for the benchmark `sse`, in a process of their own. Whoever is ahead of all others reads
 * the frames; those of the others are compared with them byte by byte, which takes less than the reading.
 */
import type { Socket } from "node:net";
import { check } from "./result.js";
import { answerRequests, type ClientAnswer, type ClientRequest, fail } from "./sse-shared.js";
import { closeSockets, openAll } from "./sse-sockets.js";

/** A block that ends a frame, and what begins a comment, which a heartbeat has. */
const FRAME = /^id: (\d+)-\S+\nevent: new_drop\ndata: {"drop_id":"\w+\.(\d+)\.\d+","created_at":\d+}\n\n/;
const COMMENT = ":".charCodeAt(0);
const NEWLINE = "\n".charCodeAt(0);

interface Stream {
  readonly socket: Socket;
  /** Bytes of frames so far. */
  length: number;
  /** A comment whose end has not come. */
  comment: string;
}

const streams: Stream[] = [];
/** The frames of whoever is ahead. */
let log = Buffer.alloc(0);
let readUpTo = 0;
let seq = 0;
const drops = new Set<string>();
let wanted = 0;
/** Bytes of frames of all streams. */
let received = 0;
let complete: (() => void) | undefined;

answerRequests(async (request: ClientRequest): Promise<ClientAnswer> => {
  let seconds = 0;
  if ("open" in request) seconds = await openAll(request.open, pathOf, opened);
  else if ("events" in request) seconds = await receive(request.events);
  else await closeSockets(streams.splice(0).map(({ socket }) => socket));
  return { seconds, times: undefined };
});

const pathOf = (number: number): string => `/events/timeline/${number % 2 === 0 ? "local" : "global"}`;

function opened(_: number, socket: Socket): (bytes: Buffer) => void {
  const stream: Stream = { socket, length: 0, comment: "" };
  streams.push(stream);
  socket.once("close", () => complete?.());
  return (bytes) => take(stream, bytes);
}

function take(stream: Stream, bytes: Buffer): void {
  for (let from = 0; from < bytes.length; ) {
    const isBetween = stream.length === 0 || log[stream.length - 1] === NEWLINE;
    const isComment = stream.comment !== "" || (isBetween && bytes[from] === COMMENT);
    from += isComment ? takeComment(stream, bytes.subarray(from)) : takeFrames(stream, bytes.subarray(from));
  }
  if (isComplete()) complete?.();
}

const isComplete = (): boolean => drops.size >= wanted && received === log.length * streams.length;

/** Returns the number of bytes taken. */
function takeComment(stream: Stream, bytes: Buffer): number {
  const text = stream.comment + bytes.toString("latin1");
  const end = text.indexOf("\n\n");
  const taken = end < 0 ? bytes.length : end + 2 - stream.comment.length;
  stream.comment = end < 0 ? text : "";
  return taken;
}

/** Returns the number of bytes taken. */
function takeFrames(stream: Stream, bytes: Buffer): number {
  const known = Math.min(log.length - stream.length, bytes.length);
  let taken = known;
  if (known === 0 || !isKnown(stream, bytes.subarray(0, known))) {
    const comment = bytes.indexOf("\n:");
    taken = comment < 0 ? bytes.length : comment + 1;
    if (known === 0) extend(bytes.subarray(0, taken));
    else if (taken > known || !isKnown(stream, bytes.subarray(0, taken))) fail("a viewer got other frames than others");
  }
  stream.length += taken;
  received += taken;
  return taken;
}

const isKnown = ({ length }: Stream, bytes: Buffer): boolean =>
  log.compare(bytes, 0, bytes.length, length, length + bytes.length) === 0;

/** Each drop must come once, and the sequences must rise. */
function extend(bytes: Buffer): void {
  log = Buffer.concat([log, bytes]);
  for (let text = log.toString("latin1", readUpTo); text.includes("\n\n"); text = log.toString("latin1", readUpTo)) {
    const [frame = "", number, drop = ""] = FRAME.exec(text) ?? fail(`no frame of a drop: ${text}`);
    if (Number(number) <= seq || drops.has(drop)) fail(`a drop came twice or too late: ${frame}`);
    drops.add(drop);
    seq = Number(number);
    readUpTo += frame.length;
  }
}

async function receive(count: number): Promise<number> {
  wanted += count;
  const started = performance.now();
  process.send?.({ waiting: true } satisfies ClientAnswer);
  await new Promise<void>((resolve) => {
    complete = resolve;
  });
  complete = undefined;
  check(isComplete() && drops.size === wanted, `each viewer got each of ${wanted} drops`);
  return (performance.now() - started) / 1_000;
}
