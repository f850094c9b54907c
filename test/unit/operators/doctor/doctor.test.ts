import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { expect, test } from "@jest/globals";
import { redisChecks } from "../../../../src/operators/doctor/checks.redis.js";
import { checked, examine, type Finding, findingsAsText, isOlder } from "../../../../src/operators/doctor/doctor.js";

test.each([
  ["2.9.10", "2.9.10", false],
  ["2.9.9", "2.9.10", true],
  ["2.10.0", "2.9.10", false],
  ["2.10.0-rc.1", "2.10.0", false],
  ["7", "6.2.0", false],
  ["7.0.0", "6.2.0", false],
  ["", "6.2.0", true],
])("version %j is older than %j: %j", (version, than, older) => {
  expect(isOlder(version, than)).toBe(older);
});

test("a check that throws is a fault with advice, and the other checks run", async () => {
  const good: Finding = { what: "Redis", state: "ok", says: "version 7" };
  const findings = await examine([
    checked("NATS", "start it", () => Promise.reject(new Error("refused"))),
    async () => [good],
  ]);
  expect(findings).toEqual([{ what: "NATS", state: "fault", says: "refused", advice: "start it" }, good]);
});

test("the report aligns, and advises only where something is wrong", () => {
  const text = findingsAsText([
    { what: "NATS", state: "ok", says: "fine", advice: "not needed" },
    { what: "Redis 1", state: "fault", says: "gone", advice: "start it" },
    { what: "x", state: "warning", says: "old" },
  ]);
  expect(text.split("\n")).toEqual([
    "✓ NATS     fine",
    "✗ Redis 1  gone",
    `${" ".repeat(11)}→ start it`,
    "! x        old",
  ]);
});

test("a Redis that accepts connections and never answers is a fault", async () => {
  const server = createServer(() => undefined).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const [check] = redisChecks([`redis://127.0.0.1:${port}`], false);
  expect(await check?.()).toMatchObject([{ what: `Redis 127.0.0.1:${port}`, state: "fault" }]);
  server.close();
}, 20_000);
