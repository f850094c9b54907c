import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { nanos } from "nats";
import { GRAPH_SUBJECTS } from "../../src/consistency/log.nats.js";
import { followsIn } from "../../src/consistency/restored/edges.js";
import { createReadSample } from "../../src/consistency/restored/samples.nats.js";
import { listReader } from "../../src/contracts/lists.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { logEntries } from "../../src/platform/nats/read-log.js";
import { eventually } from "../support/eventually.js";
import { openNats } from "../support/nats.js";
import { TcpProxy } from "../support/proxy.js";

interface Cut {
  readonly messages: number;
  readonly batch?: number;
  /** The link drops what follows after so many messages, and until it has dropped so many bytes. */
  readonly after: number;
  readonly bytes: number;
}

// Invariant 1.
test.each<[string, Cut]>([
  ["in the middle", { messages: 3_000, after: 1, bytes: 1 }],
  ["at the end", { messages: 200, batch: 100, after: 100, bytes: 200_000 }],
])(
  "a read of the log is whole or fails, also where the connection takes messages along (%s)",
  async (_, { messages, batch, after, bytes }) => {
    const bench = await openNats();
    const proxy = await TcpProxy.open(Number(new URL(bench.broker.url).port));
    const connection = await connectNats({ servers: [proxy.url("nats")], name: "reader" }, silent);
    try {
      const body = Buffer.alloc(2_000, "x");
      const all = Array.from({ length: messages }, (_, at) => ({ subject: "drops.created", id: `m${at}`, body }));
      await bench.publishAll(all);
      let count = 0;
      const read = async (): Promise<unknown> => {
        for await (const _ of logEntries(connection, { stream: "DROPS", subject: ">", batch }))
          if (++count === after) proxy.set("drop", "toClient");
        return count;
      };
      const reading = read().catch((error: unknown) => (error instanceof AppError ? error.code : error));
      await eventually(() => proxy.swallowed("toClient") >= bytes, "messages are swallowed");
      proxy.set("pass");
      expect(await reading).toBe("unavailable");
      count = after;
      expect(await read()).toBe(after + messages);
    } finally {
      await connection.close();
      await proxy.close();
      await bench.close();
    }
  },
  60_000,
);

// Invariant 1.
test("a reader who takes long for what it has read keeps its place in the log for an hour", async () => {
  const bench = await openNats();
  try {
    await bench.publish({ subject: "drops.created", id: "m", body: "{}" });
    const kept: (number | undefined)[] = [];
    for await (const _ of logEntries(bench.connection, { stream: "DROPS", subject: ">" }))
      for await (const { config } of bench.manager.consumers.list("DROPS"))
        if (config.durable_name === undefined) kept.push(config.inactive_threshold);
    expect(kept).toEqual([nanos(3_600_000)]);
  } finally {
    await bench.close();
  }
});

test("the newest settled events of the log are sampled however many have come since", async () => {
  const bench = await openNats();
  try {
    const messageOf = (drop_id: string) => {
      const event = { drop_id, user_id: "ada", visibility: "public", created_at: Date.now() };
      return { subject: "drops.created", id: drop_id, body: JSON.stringify(event) };
    };
    const settled = Array.from({ length: 100 }, (_, at) => `settled-${at}`);
    await bench.publishAll(settled.map(messageOf));
    const { time } = await bench.manager.streams.getMessage("DROPS", { last_by_subj: "drops.created" });
    const until = time.getTime() + 1;
    await eventually(() => Date.now() > until + 1, "the next message is later");
    await bench.publishAll(Array.from({ length: 20_000 }, (_, at) => messageOf(`new-${at}`)));
    const read = createReadSample(bench.connection, "drops.created", ({ payload }) => [payload]);
    const sampled = (await read(until)).map((payload) => "drop_id" in payload && payload.drop_id);
    expect(sampled).toEqual([settled[0], ...settled.slice(-40)]);
  } finally {
    await bench.close();
  }
}, 60_000);

test("the newest follows are sampled, however many members of lists the log has after them", async () => {
  const bench = await openNats();
  try {
    const messageOf = (follower_id: string, at: number) => {
      const event = { follower_id, following_id: `member-${at}`, version: 1 };
      return { subject: "graph.followed", id: `${follower_id}-${at}`, body: JSON.stringify(event) };
    };
    const follows = Array.from({ length: 50 }, (_, at) => messageOf(`fan-${at}`, at));
    const reader = listReader(randomUUID());
    const members = Array.from({ length: 500 }, (_, at) => messageOf(reader, at));
    await bench.publishAll(follows);
    await bench.publishAll(members);
    const read = createReadSample(bench.connection, GRAPH_SUBJECTS, followsIn);
    const sampled = (await read(Date.now() + 60_000)).map(({ follower }) => follower);
    expect(sampled).toEqual(["fan-0", ...Array.from({ length: 40 }, (_, at) => `fan-${at + 10}`)]);
  } finally {
    await bench.close();
  }
});
