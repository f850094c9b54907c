import { expect, test } from "@jest/globals";
import type { PublicationResult } from "../../../../src/consistency/audit/publications.js";
import { createChecks, createSample } from "../../../../src/consistency/audit/publications.js";
import type { FanoutCompleted } from "../../../../src/contracts/fanout.js";
import type { Delivery, DeliveryOutcome } from "../../../../src/delivery/handler.js";
import { AppError } from "../../../../src/kernel/errors.js";
import { silent } from "../../../../src/kernel/logger.js";

function completed(ageMs = 0, changes: Partial<FanoutCompleted> = {}): FanoutCompleted {
  const now = Date.now();
  return {
    ...{ event: "drop_created", drop_id: "d", user_id: "a", recipients: 1, chunks: 1, lag_ms: 0 },
    ...{ landed_at: now - ageMs, admitted_at: now, created_at: now },
    ...changes,
  };
}

/** One check, as its stream hands it out. */
const delivery = (of = completed(), deliveries = 1): Delivery => ({
  ...{
    stream: "CHECKS",
    consumer: "publications",
    seq: 1,
    time: Date.now(),
    subject: "checks.publication",
    deliveries,
  },
  headers: { get: () => undefined, entries: () => [] },
  body: Buffer.from(JSON.stringify(of)),
});

/** A sample, and what it counts as skipped. */
function sampling(how: { rate?: number } = {}) {
  let skipped = 0;
  const sample = createSample({
    observe: (result, count = 1) => {
      expect(result).toBe("skipped");
      skipped += count;
    },
    rate: how.rate ?? 100,
  });
  return { sample, skipped: () => skipped };
}

/** Checks that do as told. */
function scene(check: () => Promise<PublicationResult> = async () => "same") {
  const seen: string[] = [];
  const stopping = new AbortController();
  const one = createChecks({ check, observe: (result) => seen.push(result), delayMs: 0 });
  const run = (of = delivery()): Promise<DeliveryOutcome> => one(of, { stopping: stopping.signal, log: silent });
  return { run, seen, stopping };
}

test("a publication is acked after its check", async () => {
  const { run, seen } = scene();
  expect(await run()).toEqual({ kind: "ack" });
  expect(seen).toEqual(["same"]);
});

test("a check that comes too late is skipped and counted", async () => {
  const { run, seen } = scene();
  expect(await run(delivery(completed(11 * 60_000)))).toEqual({ kind: "ack" });
  expect(seen).toEqual(["skipped"]);
});

test("within the rate every publication is chosen; at a rate of 0 none is", () => {
  const all = Array.from({ length: 50 }, () => completed());
  const [whole, none] = [sampling(), sampling({ rate: 0 })];
  expect([whole.sample(all), whole.skipped()]).toEqual([new Set(all), 0]);
  expect([none.sample(all), none.skipped()]).toEqual([new Set(), 50]);
});

test("publications beyond the rate, old or backdated ones are skipped and counted", () => {
  const { sample, skipped } = sampling({ rate: 2 });
  const all = Array.from({ length: 5 }, () => completed());
  expect([sample(all), skipped()]).toEqual([new Set(all.slice(0, 2)), 3]);
  const other = sampling();
  const unfit = [completed(11 * 60_000), completed(0, { created_at: Date.now() - 3_600_000 })];
  expect([other.sample(unfit), other.skipped()]).toEqual([new Set(), 2]);
});

test("a check that meets an outage is retried, and fails in the end", async () => {
  const away = async (): Promise<never> => {
    throw new AppError("unavailable", "UserService is unavailable");
  };
  const { run, seen } = scene(away);
  expect(await run()).toMatchObject({ kind: "retry" });
  expect(await run(delivery(completed(), 3))).toEqual({ kind: "ack" });
  expect(seen).toEqual(["failed"]);
});

test.each([
  ["no JSON", "junk"],
  ["no UTF-8", "\xff"],
  ["null", "null"],
  ["without a field", "{}"],
  ["with a wrong field", JSON.stringify({ ...completed(), landed_at: "now" })],
])("a message that is no publication (%s) is acked and counts as failed", async (_, text) => {
  const { run, seen } = scene();
  expect(await run({ ...delivery(), body: Buffer.from(text, "latin1") })).toEqual({ kind: "ack" });
  expect(seen).toEqual(["failed"]);
});

test("a publication that claims to land later waits no longer than any", async () => {
  const { run, seen } = scene();
  expect(await run(delivery(completed(-86_400_000)))).toEqual({ kind: "ack" });
  expect(seen).toEqual(["same"]);
});

test("a process that stops releases its checks", async () => {
  const { run, seen, stopping } = scene();
  stopping.abort();
  expect(await run()).toEqual({ kind: "release" });
  expect(seen).toEqual([]);
});
