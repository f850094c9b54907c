import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { createOpenList, type ListSources } from "../../../src/gateway/lists.js";
import { codeOf } from "../../../src/kernel/errors.js";

const STREAMS = 20_000;

test("checks of all open lists at once ask for a few lists at a time, and refuse what cannot wait", async () => {
  const counted = { underWay: 0, most: 0, asked: 0 };
  const listReader = async (owner_id: string) => {
    counted.most = Math.max(counted.most, ++counted.underWay);
    counted.asked++;
    await new Promise(setImmediate);
    counted.underWay--;
    return { member_ids: [], followed_ids: [], owner_id };
  };
  const sources = { listReader, judgesReplies: true } as unknown as ListSources;
  const open = createOpenList(sources);
  const checks = Array.from({ length: STREAMS }, (_, number) => open(`user-${number}`, randomUUID()).check(0));
  const results = await Promise.allSettled(checks);
  const refused = results.flatMap((result) => (result.status === "rejected" ? codeOf(result.reason) : []));
  expect(counted.most).toBe(64);
  expect(counted.asked + refused.length).toBe(STREAMS);
  expect(counted.asked).toBeGreaterThan(10_000);
  expect(new Set(refused)).toEqual(new Set(["unavailable"]));
});
