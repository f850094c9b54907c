import { afterEach, expect, test } from "@jest/globals";
import {
  type StreamOptions,
  TimelineClient,
  TimelineError,
  type TimelineStream,
} from "../../clients/typescript/src/index.js";
import { eventually } from "../support/eventually.js";
import { events, json, type ScriptedServer, type Step, scriptedServer } from "../support/scripted-server.js";

const PAGE = { drop_ids: ["a"], has_more: false, next_max_id: "", prev_min_id: "", degraded: false, items: [] };
const PROBLEM = { type: "about:blank", title: "Bad Request", status: 400 };
const GREETING = ": connected\nid: 1-a-b\n\n";
const drop = (number: number): string =>
  `id: ${number}-a-b\nevent: new_drop\ndata: {"drop_id":"drop-${number}","created_at":${number}}\n\n`;

const closes: Array<() => unknown> = [];

afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

async function serve(...steps: readonly Step[]): Promise<ScriptedServer> {
  const server = await scriptedServer(...steps);
  closes.push(() => server.close());
  return server;
}

interface Heard {
  readonly stream: TimelineStream;
  readonly drops: string[];
  readonly downs: Array<{ readonly error: TimelineError; readonly delayMs: number }>;
  opened: number;
  closed: { readonly error: TimelineError | undefined } | undefined;
}

function listen(client: TimelineClient, options?: StreamOptions): Heard {
  const stream = client.stream("home", options);
  const heard: Heard = { stream, drops: [], downs: [], opened: 0, closed: undefined };
  closes.push(stream.close);
  stream.on("open", () => heard.opened++);
  stream.on("down", (down) => heard.downs.push(down));
  stream.on("closed", (closed) => {
    heard.closed = closed;
  });
  stream.on("new_drop", ({ data }) => heard.drops.push(data.drop_id));
  return heard;
}

test.each([400, 403, 404, 405, 410, 422])("a call that gets a %i fails at once, with its problem", async (status) => {
  const problem = { ...PROBLEM, status, errors: [{ field: "limit", detail: "must be a whole number from 1 to 100" }] };
  const server = await serve(json(status, problem));
  const error = await new TimelineClient({ url: server.url })
    .page("home", { limit: 0 })
    .catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(TimelineError);
  expect(error).toMatchObject({ status, problem, isFinal: true });
  expect(server.requests.map(({ url }) => url)).toEqual(["/api/v1/timelines/home?limit=0"]);
});

test.each([408, 429, 500, 502, 503, 504])(
  "a call that gets a %i is tried again, after the time that it names",
  async (status) => {
    const server = await serve(json(status, { ...PROBLEM, status }, { "Retry-After": "2" }), json(200, PAGE));
    expect(await new TimelineClient({ url: server.url }).page("home")).toEqual(PAGE);
    const [first, second] = server.requests.map(({ atMs }) => atMs);
    expect((second as number) - (first as number)).toBeGreaterThanOrEqual(1_990);
  },
);

test("a call is tried three times, each a second apart at least", async () => {
  const server = await serve(json(503, { ...PROBLEM, status: 503 }));
  await expect(new TimelineClient({ url: server.url }).page("local")).rejects.toMatchObject({
    status: 503,
    isFinal: false,
  });
  expect(server.requests).toHaveLength(3);
  const [first, , third] = server.requests.map(({ atMs }) => atMs);
  expect((third as number) - (first as number)).toBeGreaterThanOrEqual(1_990);
});

test("a call whose server names more than ten seconds fails at once, and says the time", async () => {
  const server = await serve(json(429, { ...PROBLEM, status: 429 }, { "Retry-After": "1800" }));
  const asked = new TimelineClient({ url: server.url }).analyze({ did: "ada", type: "full" });
  await expect(asked).rejects.toMatchObject({ status: 429, retryAfterMs: 1_800_000 });
  expect(server.requests).toHaveLength(1);
});

test("an analysis that is asked for again has the same key", async () => {
  const server = await serve((response) => response.destroy(), json(202, { analysis_id: "1", status: "queued" }));
  await new TimelineClient({ url: server.url }).analyze({ did: "ada", type: "full" });
  const [first, second] = server.requests.map(({ headers }) => headers["idempotency-key"]);
  expect(first).toMatch(/^[0-9a-f-]{36}$/);
  expect(second).toBe(first);
});

test("a page of a proxy in place of JSON is no answer", async () => {
  const server = await serve(
    (response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<p>Log in"),
    json(200, PAGE),
  );
  expect(await new TimelineClient({ url: server.url }).page("home")).toEqual(PAGE);
  expect(server.requests).toHaveLength(2);
});

test("the caller's signal ends a call that nobody answers, and the wait for the next try", async () => {
  const server = await serve(() => undefined);
  const [first, second] = [new AbortController(), new AbortController()];
  const client = new TimelineClient({ url: server.url });
  const hanging = client.page("home", {}, { signal: first.signal });
  await eventually(() => server.requests.length === 1, "the request is there");
  first.abort(new Error("the user has left"));
  await expect(hanging).rejects.toThrow("the user has left");
  const refusing = await serve(json(503, { ...PROBLEM, status: 503 }, { "Retry-After": "9" }));
  const waiting = new TimelineClient({ url: refusing.url }).page("home", {}, { signal: second.signal });
  await eventually(() => refusing.requests.length === 1, "the request is refused");
  second.abort(new Error("the user has left"));
  await expect(waiting).rejects.toThrow("the user has left");
});

test("a refused token is renewed once, by one call of the function for all requests at that time", async () => {
  const refuse = json(401, { ...PROBLEM, status: 401 });
  const server = await serve((response, request) =>
    (request.headers.authorization === "Bearer new" ? json(200, PAGE) : refuse)(response, request),
  );
  const refused: Array<string | undefined> = [];
  let current = "old";
  const token = async (old?: string) => {
    if (old !== undefined) {
      refused.push(old);
      current = "new";
    }
    return current;
  };
  const client = new TimelineClient({ url: `${server.url}/`, token });
  const pages = await Promise.all([client.page("home"), client.page("local"), client.page("global")]);
  expect(pages).toEqual([PAGE, PAGE, PAGE]);
  expect(refused).toEqual(["old"]);
  expect(server.requests).toHaveLength(6);
  // The function goes on to return a token that is refused: each later request renews it.
  current = "old";
  expect(await client.page("home")).toEqual(PAGE);
  expect(refused).toEqual(["old", "old"]);
});

test("a stream whose renewed token is refused too ends, and its loop throws", async () => {
  const server = await serve(json(401, { ...PROBLEM, status: 401, detail: "the token is not valid" }));
  const asked: Array<string | undefined> = [];
  const token = (old?: string): string => {
    asked.push(old);
    return `token-${asked.length}`;
  };
  const stream = new TimelineClient({ url: server.url, token }).stream("home");
  await expect(stream[Symbol.asyncIterator]().next()).rejects.toMatchObject({
    status: 401,
    message: "the token is not valid",
  });
  expect(asked).toEqual([undefined, "token-1"]);
  expect(stream.isClosed).toBe(true);
});

test("a token function that fails is asked again, and one that rejects for good ends the stream", async () => {
  const server = await serve(events(GREETING + drop(2)));
  let calls = 0;
  const token = async () => {
    calls++;
    if (calls === 1) throw new Error("the login service is away");
    return "token";
  };
  const heard = listen(new TimelineClient({ url: server.url, token }));
  await eventually(() => heard.drops.length === 1, "the stream is open");
  expect(heard.downs.map(({ error }) => error.message)).toEqual(["no answer: Error: the login service is away"]);
  const loggedOut = () => Promise.reject(new TimelineError("logged out", { status: 401 }));
  const ended = listen(new TimelineClient({ url: server.url, token: loggedOut }));
  await eventually(() => ended.closed !== undefined, "the stream ends");
  expect(ended.closed?.error?.message).toBe("logged out");
});

test.each([400, 403, 404, 410])("a stream that gets a %i ends, and says why", async (status) => {
  const server = await serve(json(status, { ...PROBLEM, status }));
  const heard = listen(new TimelineClient({ url: server.url }));
  await eventually(() => heard.closed !== undefined, "the stream ends");
  expect(heard.closed?.error).toMatchObject({ status, isFinal: true });
  expect(heard.downs).toEqual([]);
  expect(server.requests).toHaveLength(1);
});

test("a stream comes back after statuses at which an EventSource gives up, a page of a proxy and a cut", async () => {
  const server = await serve(
    json(503, { ...PROBLEM, status: 503 }),
    (response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<p>Log in"),
    (response) => response.destroy(),
    events(GREETING + drop(2)),
  );
  const heard = listen(new TimelineClient({ url: server.url }));
  await eventually(() => heard.drops.length === 1, "the stream is open", 40_000);
  expect(heard.downs.map(({ error }) => error.message.slice(0, 9))).toEqual(["Bad Reque", "the answe", "no answer"]);
  for (const { delayMs } of heard.downs) expect(delayMs).toBeGreaterThanOrEqual(1_000);
  expect(heard.opened).toBe(1);
});

test("a stream waits as long as Retry-After and retry say, and tells the reason of a refusal", async () => {
  const refused = ": too many event streams of this user";
  const server = await serve(
    json(429, { ...PROBLEM, status: 429 }, { "Retry-After": "2" }),
    events(`retry: 2500\n${refused}\n\n`, { ends: true }),
    events(GREETING + drop(2)),
  );
  const heard = listen(new TimelineClient({ url: server.url }));
  await eventually(() => heard.drops.length === 1, "the stream is open");
  expect(heard.downs[1]?.error.message).toBe("too many event streams of this user");
  const [first, second, third] = server.requests.map(({ atMs }) => atMs) as [number, number, number];
  expect(second - first).toBeGreaterThanOrEqual(1_990);
  expect(third - second).toBeGreaterThanOrEqual(2_490);
  expect(heard.opened).toBe(1);
});

test("a refusal of a stream that resumes does not open it", async () => {
  const server = await serve(
    events("retry: 10\n: the service is draining\n\n", { ends: true }),
    events(GREETING + drop(2)),
  );
  const heard = listen(new TimelineClient({ url: server.url }), { lastEventId: "0-a-b" });
  await eventually(() => heard.drops.length === 1, "it is open");
  expect([heard.opened, heard.downs.map(({ error }) => error.message)]).toEqual([1, ["the service is draining"]]);
  expect(server.requests.map(({ headers }) => headers["last-event-id"])).toEqual(["0-a-b", "0-a-b"]);
});

test("a stream that is accepted and cut again and again is asked for ever more seldom", async () => {
  const server = await serve(events(`retry: 10\n${GREETING}`, { ends: true }));
  const heard = listen(new TimelineClient({ url: server.url }));
  await eventually(() => heard.downs.length === 3, "three connections are over");
  for (const { delayMs } of heard.downs) expect(delayMs).toBeGreaterThanOrEqual(1_000);
  expect(server.requests.map(({ headers }) => headers["last-event-id"])).toEqual([undefined, "1-a-b", "1-a-b"]);
});

test("a connection without a byte is lost after the idle time", async () => {
  const server = await serve(() => undefined, events(GREETING), events(GREETING + drop(2)));
  const heard = listen(new TimelineClient({ url: server.url }), { idleMs: 300 });
  await eventually(() => heard.drops.length === 1, "the third connection speaks");
  expect(heard.downs.map(({ error }) => error.message)).toEqual(["nothing came for 300 ms", "nothing came for 300 ms"]);
});

test("a stream that is not read stops at a bound, and its loop gets each event once, in order", async () => {
  const many = 20_000;
  let sent = 0;
  const server = await serve((response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" }).write(GREETING);
    const send = (): void => {
      while (sent < many) {
        sent++;
        const text = drop(sent).replace('"drop_id"', `"pad":"${"x".repeat(2_000)}","drop_id"`);
        if (!response.write(text)) return void response.once("drain", send);
      }
    };
    send();
  });
  const stream = new TimelineClient({ url: server.url }).stream("home", { idleMs: 1_000 });
  closes.push(stream.close);
  const loop = stream[Symbol.asyncIterator]();
  const first = await loop.next();
  expect(first.value?.data).toMatchObject({ drop_id: "drop-1" });
  let before = -1;
  // The connection's buffers fill up; nothing is lost for being idle meanwhile.
  await eventually(() => {
    const isStill = sent === before;
    before = sent;
    return isStill;
  }, "the server cannot send more");
  expect(sent).toBeLessThan(many);
  for (let number = 2; number <= many; number++) {
    const { value } = await loop.next();
    if (value?.id !== `${number}-a-b`) throw new Error(`event ${number} is ${JSON.stringify(value)}`);
  }
  expect(server.requests).toHaveLength(1);
});

test("closing a stream ends its loop and its connection at once, also inside a listener", async () => {
  let isGone = false;
  const server = await serve((response) => {
    events(GREETING + drop(2) + drop(3))(response, response.req);
    response.once("close", () => {
      isGone = true;
    });
  });
  const heard = listen(new TimelineClient({ url: server.url }));
  heard.stream.on("new_drop", () => heard.stream.close());
  const { done } = await heard.stream[Symbol.asyncIterator]().next();
  expect(done).toBe(true);
  expect([heard.drops, heard.closed]).toEqual([["drop-2"], { error: undefined }]);
  await eventually(() => isGone, "the connection is gone");
  expect(() => heard.stream[Symbol.asyncIterator]()).toThrow("the stream has a loop already");
});

test("leaving a loop closes the stream, and so does its signal", async () => {
  const server = await serve(events(GREETING + drop(2)));
  const client = new TimelineClient({ url: server.url });
  const stream = client.stream("home");
  for await (const { event } of stream) {
    expect(event).toBe("new_drop");
    break;
  }
  expect(stream.isClosed).toBe(true);
  const abort = new AbortController();
  const heard = listen(client, { signal: abort.signal });
  await eventually(() => heard.drops.length === 1, "it is open");
  abort.abort();
  expect(heard.closed).toEqual({ error: undefined });
  const late = listen(client, { signal: abort.signal });
  expect(late.stream.isClosed).toBe(true);
  expect(server.requests).toHaveLength(2);
});

test("an event that is no JSON is read again from the position before it", async () => {
  const server = await serve(events(`${GREETING}id: 2-a-b\nevent: new_drop\ndata: {"drop\n\n`), events(drop(2)));
  const heard = listen(new TimelineClient({ url: server.url }));
  await eventually(() => heard.drops.length === 1, "the drop is there");
  expect(heard.downs.map(({ error }) => error.message)).toEqual(["an event is no JSON"]);
  expect(server.requests.map(({ headers }) => headers["last-event-id"])).toEqual([undefined, "1-a-b"]);
});
