/** The clients of the benchmark `sse`, in a process of their own: bare sockets, which check every event. */
import { createHmac } from "node:crypto";
import { connect, type Socket } from "node:net";
import { JWT_SECRET } from "../../support/service.js";
import { summarise } from "./measure.js";
import { check } from "./result.js";
import { authorOf, type ClientAnswer, type ClientRequest } from "./sse-shared.js";

const AT_ONCE = 128;
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

process.on("message", (request: ClientRequest) => {
  void answer(request).then(
    (value) => process.send?.(value),
    (error: unknown) => process.send?.({ fault: String(error) } satisfies ClientAnswer),
  );
});

async function answer(request: ClientRequest): Promise<ClientAnswer> {
  if ("open" in request) return openMany(request.open);
  if ("events" in request) return receive(request.events, request.latency);
  await closeAll();
  return { seconds: 0, times: undefined };
}

async function openMany({ port, from, to }: { port: number; from: number; to: number }): Promise<ClientAnswer> {
  // Signed before, so that only opening counts.
  const requests = Array.from({ length: to - from }, (_, n) => requestOf(`u${from + n}`));
  const started = performance.now();
  let next = 0;
  const lane = async (): Promise<void> => {
    for (let n = next++; n < requests.length; n = next++)
      streams.push(await openOne(port, from + n, requests[n] as string));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
  return { seconds: (performance.now() - started) / 1_000, times: undefined };
}

/** All sockets read into it, since their bytes are looked at once. */
const buffer = Buffer.alloc(64 * 1024);

function openOne(port: number, number: number, request: string): Promise<Stream> {
  return new Promise((resolve, reject) => {
    let [head, isOpen] = ["", false];
    const callback = (count: number): boolean => {
      const text = buffer.toString("latin1", 0, count);
      if (isOpen) read(stream, text);
      else head += text;
      if (isOpen || !head.includes("\n\n")) return true;
      isOpen = true;
      if (head.startsWith("HTTP/1.1 200 ")) resolve(stream);
      else reject(new Error(head));
      head = "";
      return true;
    };
    const socket = connect({ port, host: "127.0.0.1", noDelay: true, onread: { buffer, callback } });
    const stream: Stream = { user: `u${number}`, author: authorOf(number), socket, next: 0, rest: "" };
    socket.once("error", reject);
    socket.once("close", () => complete?.());
    socket.write(request, "latin1");
  });
}

const requestOf = (user: string): string =>
  `GET /events/timeline/home HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${tokenOf(user)}\r\n\r\n`;

function tokenOf(user: string): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const text = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub: user, exp: Math.floor(Date.now() / 1_000) + 3_600 })}`;
  return `${text}.${createHmac("sha256", JWT_SECRET).update(text).digest("base64url")}`;
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
      process.send?.({ fault: `an event was missed, repeated or misplaced: ${came}` } satisfies ClientAnswer);
      process.exit(1);
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
  const open = streams.splice(0);
  await Promise.all(
    open.map(({ socket }) => {
      const closed = new Promise((resolve) => socket.once("close", resolve));
      socket.destroy();
      return closed;
    }),
  );
  [wanted, received] = [0, 0];
}
