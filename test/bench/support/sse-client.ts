/** The clients of the benchmark `sse`, in a process of their own: bare sockets, which check every event. */
import type { Socket } from "node:net";
import { summarise } from "./measure.js";
import { check } from "./result.js";
import { answerRequests, authorOf, type ClientAnswer, type ClientRequest, fail } from "./sse-shared.js";
import { closeSockets, type Opening, openAll } from "./sse-sockets.js";

const MARK = '"drop_id":"';
/** Longer than the mark and any drop id of the benchmark. */
const TAIL = 100;

interface Stream {
  readonly user: string;
  /** Whom the user follows. */
  readonly author: string;
  readonly socket: Socket;
  next: number;
  rest: string;
}

const streams: Stream[] = [];
let wanted = 0;
let received = 0;
let times: number[] | undefined;
let complete: (() => void) | undefined;

answerRequests(async (request: ClientRequest): Promise<ClientAnswer> => {
  if ("open" in request) return openMany(request.open);
  if ("events" in request) return receive(request.events, request.latency);
  await closeAll();
  return { seconds: 0, times: undefined };
});

async function openMany(opening: Opening): Promise<ClientAnswer> {
  const seconds = await openAll(
    opening,
    () => "/events/timeline/home",
    (number, socket) => {
      const stream: Stream = { user: `u${number}`, author: authorOf(number), socket, next: 0, rest: "" };
      streams.push(stream);
      socket.once("close", () => complete?.());
      return (bytes) => read(stream, bytes.toString("latin1"));
    },
  );
  return { seconds, times: undefined };
}

/** Drops are called `user.number.time`, or by their author: each must come once, in the order of its number. */
function read(stream: Stream, part: string): void {
  const text = stream.rest + part;
  let at = 0;
  for (let mark = text.indexOf(MARK); mark >= 0; mark = text.indexOf(MARK, at)) {
    const end = text.indexOf('"', mark + MARK.length);
    if (end < 0) break;
    at = end;
    const [user, number, time] = text.slice(mark + MARK.length, end).split(".");
    if ((user !== stream.user && user !== stream.author) || Number(number) !== stream.next) {
      const came = `${stream.user} got ${user}.${number} and not ${stream.next}`;
      fail(`an event was missed, repeated or misplaced: ${came}`);
    }
    stream.next++;
    received++;
    times?.push(Number(process.hrtime.bigint() / 1_000n - BigInt(time ?? 0)) / 1_000);
  }
  stream.rest = text.slice(Math.max(at, text.length - TAIL));
  if (received >= wanted) complete?.();
}

async function receive(events: number, latency: boolean): Promise<ClientAnswer> {
  times = latency ? [] : undefined;
  wanted += events;
  const started = performance.now();
  process.send?.({ waiting: true } satisfies ClientAnswer);
  await new Promise<void>((resolve) => {
    complete = resolve;
  });
  complete = undefined;
  check(received === wanted, `${received} of ${wanted} events came`);
  return { seconds: (performance.now() - started) / 1_000, times: times && summarise(times) };
}

async function closeAll(): Promise<void> {
  await closeSockets(streams.splice(0).map(({ socket }) => socket));
  [wanted, received] = [0, 0];
}
