import { expect, test } from "@jest/globals";
import type { NatsConnectionImpl } from "nats/lib/nats-base-client/nats.js";
import { createStoredMessages } from "../../src/platform/nats/message.js";
import { type LogEntry, logEntries } from "../../src/platform/nats/read-log.js";
import { natsOfFile } from "../support/nats-of-file.js";

const bench = natsOfFile();

const LINES = [
  "NATS/1.0",
  "X-Tight:tight",
  "X-Wide:   wide  ",
  "X-Twice: first",
  "X-Twice: second",
  "X-Empty:",
  "X-Text: ü: 1",
];

test("headers of other publishers are read in every spelling that the server takes", async () => {
  const head = `${LINES.join("\r\n")}\r\n\r\n`;
  const size = Buffer.byteLength(head);
  const { protocol } = bench.connection as NatsConnectionImpl;
  protocol.sendCommand(`HPUB drops.deleted ${size} ${size + 1}\r\n${head}x\r\n`);
  const broken = "NATS/1.0\r\nX-Broken: a\nb\r\nX-Sound: sound\r\n\r\n";
  protocol.sendCommand(`HPUB drops.deleted ${broken.length} ${broken.length + 1}\r\n${broken}x\r\n`);
  bench.connection.publish("drops.deleted", "bare");
  await bench.connection.flush();
  const read: LogEntry[] = [];
  for await (const entry of logEntries(bench.connection, { stream: "DROPS", subject: ">" })) read.push(entry);
  const [full, malformed, bare] = read;
  const stored = await createStoredMessages(bench.connection).read("DROPS", full?.seq as number);
  for (const headers of [full?.headers, stored?.headers]) {
    expect(headers?.get("X-Tight")).toBe("tight");
    expect(headers?.get("X-Wide")).toBe("wide");
    expect(headers?.get("X-Twice")).toBe("first");
    expect(headers?.get("X-Empty")).toBeUndefined();
    expect(headers?.get("X-Text")).toBe("ü: 1");
    expect(headers?.get("Tight")).toBeUndefined();
    const all = { "X-Tight": "tight", "X-Wide": "wide", "X-Twice": "first", "X-Empty": "", "X-Text": "ü: 1" };
    expect(Object.fromEntries(headers?.entries() ?? [])).toEqual(all);
  }
  expect(malformed?.headers.get("X-Broken")).toBeUndefined();
  expect(malformed?.headers.get("X-Sound")).toBe("sound");
  expect(bare?.headers.get("X-Tight")).toBeUndefined();
  expect([...(bare?.headers.entries() ?? [])]).toEqual([]);
});
