import { createSocket, type Socket } from "node:dgram";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import ipaddr from "ipaddr.js";
import { createResolve } from "../../src/platform/http/resolve.js";

const [A, AAAA] = [1, 28];
const CODE = { none: 0, failed: 2, unknown: 3 };
const HEADER_BYTES = 12;

/** The answers to names: addresses, or the code of a failure. A name that is not listed is never answered. */
const NAMES: Readonly<Record<string, Partial<Record<number, readonly string[] | number>>>> = {
  "both.example": { [A]: ["8.8.8.8", "10.0.0.1"], [AAAA]: ["2606:4700::1"] },
  "old.example": { [A]: ["8.8.8.8"], [AAAA]: [] },
  "new.example": { [A]: [], [AAAA]: ["2606:4700::1"] },
  "half.example": { [A]: ["8.8.8.8"], [AAAA]: CODE.failed },
  "empty.example": { [A]: [], [AAAA]: [] },
  "unknown.example": { [A]: CODE.unknown, [AAAA]: CODE.unknown },
  "failed.example": { [A]: CODE.failed, [AAAA]: CODE.failed },
};

let server: Socket;
let address: string;
const asked = new Set<string>();

beforeAll(async () => {
  server = createSocket("udp4", (message, { address: to, port }) => {
    const reply = replyTo(message);
    if (reply) server.send(reply, port, to);
  });
  await new Promise<void>((resolve) => server.bind(0, "127.0.0.1", resolve));
  address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => new Promise<void>((resolve) => server.close(() => resolve())));

/** Reads the question of a message, and returns the reply to it (RFC 1035, 4.1). */
function replyTo(message: Buffer): Buffer | undefined {
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (let length = message[at] as number; length > 0; length = message[at] as number) {
    labels.push(message.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  const name = labels.join(".").toLowerCase();
  asked.add(name);
  const type = message.readUInt16BE(at + 1);
  const known = NAMES[name]?.[type];
  if (known === undefined) return undefined;
  const addresses = typeof known === "number" ? [] : known;
  const header = Buffer.from(message.subarray(0, HEADER_BYTES));
  header.writeUInt16BE(0x8180 + (typeof known === "number" ? known : CODE.none), 2);
  for (const [place, count] of [1, addresses.length, 0, 0].entries()) header.writeUInt16BE(count, 4 + 2 * place);
  const records = addresses.map((one) => {
    const bytes = ipaddr.parse(one).toByteArray();
    return Buffer.from([0xc0, HEADER_BYTES, 0, type, 0, 1, 0, 0, 0, 0, 0, bytes.length, ...bytes]);
  });
  return Buffer.concat([header, message.subarray(HEADER_BYTES, at + 5), ...records]);
}

const resolved = async (host: string): Promise<string[]> =>
  [...(await createResolve([address])(host, new AbortController().signal))].sort();

test.each([
  ["both.example", ["10.0.0.1", "2606:4700::1", "8.8.8.8"]],
  ["old.example", ["8.8.8.8"]],
  ["new.example", ["2606:4700::1"]],
  ["half.example", ["8.8.8.8"]],
  ["empty.example", []],
  ["unknown.example", []],
])("%s has the addresses %j", async (host, addresses) => {
  expect(await resolved(host)).toEqual(addresses);
});

test("a name server that fails is an error, and not an empty list of addresses", async () => {
  await expect(resolved("failed.example")).rejects.toThrow("ESERVFAIL");
});

test("a name is not completed with the search domains of this network", async () => {
  asked.clear();
  await resolved("unknown.example");
  expect([...asked]).toEqual(["unknown.example"]);
});

test("a question without an answer ends with its signal", async () => {
  const ended = new AbortController();
  const answer = createResolve([address])("silent.example", ended.signal);
  ended.abort();
  await expect(answer).rejects.toThrow("ECANCELLED");
});
