import { expect, test } from "@jest/globals";
import type { PublicationResult } from "../../../../src/consistency/audit/publications.js";
import { createSampledChecks } from "../../../../src/consistency/audit/publications.js";
import type { Delivery, Outcome } from "../../../../src/delivery/handler.js";
import { AppError } from "../../../../src/kernel/errors.js";
import { silent } from "../../../../src/kernel/logger.js";

/** One completion, as its stream hands it out. */
function delivery(changes: Partial<Delivery> = {}, ageMs = 0): Delivery {
  const now = Date.now();
  const body = {
    event: "drop_created",
    drop_id: "d",
    user_id: "a",
    landed_at: now - ageMs,
    admitted_at: now,
    created_at: now,
  };
  return {
    ...{
      stream: "COMPLETIONS",
      consumer: "publications",
      seq: 1,
      time: now,
      subject: "completed.fanout",
      deliveries: 1,
    },
    headers: { get: () => undefined, entries: () => [] },
    body: Buffer.from(JSON.stringify(body)),
    ...changes,
  };
}

/** Sampling whose checks do as told. */
function scene(how: { percent?: number; rate?: number; check?: () => Promise<PublicationResult> } = {}) {
  const seen: string[] = [];
  let checks = 0;
  const stopping = new AbortController();
  const { one, together } = createSampledChecks({
    check: async () => {
      checks++;
      return how.check?.() ?? "same";
    },
    observe: (result, count = 1) => seen.push(...Array.from({ length: count }, () => result)),
    percent: how.percent ?? 100,
    rate: how.rate ?? 100,
    delayMs: 0,
  });
  const context = { stopping: stopping.signal, log: silent };
  const run = async (of = delivery()): Promise<Outcome> => {
    const isDone = of.deliveries === 1 && (await together([of], context)).length === 0;
    return isDone ? { kind: "ack" } : one(of, context);
  };
  return { run, seen, checks: () => checks, stopping };
}

test("each publication is checked once, and acked after it", async () => {
  const { run, seen } = scene();
  expect(await run()).toEqual({ kind: "ack" });
  expect(seen).toEqual(["same"]);
});

test("at 0 percent nothing is checked, and everything acked", async () => {
  const { run, seen, checks } = scene({ percent: 0 });
  for (let turn = 0; turn < 50; turn++) expect(await run()).toEqual({ kind: "ack" });
  expect([seen, checks()]).toEqual([[], 0]);
});

test("publications beyond the rate, old or backdated ones are skipped and counted", async () => {
  const { run, seen, checks } = scene({ rate: 2 });
  for (let turn = 0; turn < 5; turn++) await run();
  expect([checks(), seen.filter((result) => result === "skipped").length]).toEqual([2, 3]);
  const other = scene();
  await other.run(delivery({}, 11 * 60_000));
  const now = Date.now();
  const imported = { drop_id: "d", landed_at: now, admitted_at: now, created_at: now - 3_600_000 };
  await other.run(delivery({ body: Buffer.from(JSON.stringify(imported)) }));
  expect([other.checks(), other.seen]).toEqual([0, ["skipped", "skipped"]]);
});

test("a check that meets an outage is retried, and fails in the end", async () => {
  const away = async (): Promise<never> => {
    throw new AppError("unavailable", "UserService is unavailable");
  };
  const { run, seen } = scene({ check: away });
  expect(await run()).toMatchObject({ kind: "retry" });
  expect(await run(delivery({ deliveries: 3 }))).toEqual({ kind: "ack" });
  expect(seen).toEqual(["failed"]);
});

test("a process that stops releases its checks", async () => {
  const { run, checks, stopping } = scene();
  stopping.abort();
  expect(await run()).toEqual({ kind: "release" });
  expect(checks()).toBe(0);
});
