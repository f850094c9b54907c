import { expect, test } from "@jest/globals";
import type { Feed, PartFeed } from "../../../src/gateway/feed.nats.js";
import type { SentEvents } from "../../../src/gateway/observe.js";
import { Session } from "../../../src/gateway/session/session.js";
import { silent } from "../../../src/kernel/logger.js";

const END = { createdAt: 1, firstSeq: 1, lastSeq: 0, perSubject: 128 };

/** A session that asks these questions of NOTIFY, and the blocks that its client gets after the first. */
function sessionWith(questions: Partial<PartFeed> = {}) {
  const feed = { of: () => ({ current: () => END.createdAt, state: async () => END, ...questions }) };
  const standings = { of: () => "active" as const, size: 0 };
  const sentEvents = { add: () => undefined } as unknown as SentEvents;
  const deps = { feed: feed as unknown as Feed, sentEvents, standings };
  const session = new Session({ user: "ada", issuedAt: 0 }, { ...deps, log: silent }, () => undefined);
  const blocks: string[] = [];
  const sink = { write: (block: string) => void blocks.push(block), drained: async () => undefined };
  return { session, blocks, sink };
}

const drop = (seq: number) => ({ seq, check: "", content: { event: "new_drop", data: "{}", key: `new_drop\n${seq}` } });

test("a session that ended before its start sends nothing", async () => {
  const { session, blocks, sink } = sessionWith();
  const start = await session.prepare(undefined, END);
  session.end();
  await session.start(sink, { ...start, replay: [drop(1)] });
  session.take(drop(2));
  void session.registeredAgain();
  session.heartbeat();
  await session.recheck({ maxAgeMs: 0, heardMs: 0 });
  expect(blocks).toEqual([]);
});

// Invariant 7.
test("a registration that was lost resets the client: in its first block, or at once if it has that", async () => {
  const { session, blocks, sink } = sessionWith();
  const start = await session.prepare(undefined, END);
  expect(session.greeting(1, start)).not.toContain("reset");
  void session.registeredAgain();
  expect(session.greeting(1, start)).toContain("registration_lost");
  await session.start(sink, start);
  expect(blocks).toEqual([]);
  void session.registeredAgain();
  expect(blocks).toEqual([expect.stringContaining("registration_lost")]);
});

// Invariant 7.
test("after a gap other parts are looked at until they answer, and not again if a later question fails", async () => {
  let looks = 0;
  let answers = false;
  const { session, sink } = sessionWith({
    // Something is new, so that the user's last sequence is asked for.
    state: async () => ({ ...END, lastSeq: 5 }),
    isElsewhere: async () => {
      looks++;
      if (!answers) throw new Error("no answer");
      return false;
    },
    lastOf: () => Promise.reject(new Error("no answer")),
  });
  await session.start(sink, await session.prepare(undefined, END));
  const check = () => session.recheck({ maxAgeMs: 0, heardMs: 0 });
  await check();
  expect(looks).toBe(0);
  session.gaps++;
  for (let checks = 0; checks < 2; checks++) await check();
  expect(looks).toBe(2);
  answers = true;
  for (let checks = 0; checks < 2; checks++) await check();
  expect(looks).toBe(3);
});
