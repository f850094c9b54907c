import { expect, test } from "@jest/globals";
import { Looks } from "../../../src/consistency/looks.js";

const waits = (seq: number) => ({ consumer: "planner", seq, at: 0 });
const look = (delivered: number, floor: number, created = "now") => ({
  ...{ name: "planner", created, num_ack_pending: 100 },
  ...{ delivered: { stream_seq: delivered }, ack_floor: { stream_seq: floor } },
});

test("while an event waits, others count as applied once they were delivered long enough ago", () => {
  const looks = new Looks(60_000);
  const acked = (delivered: number, now: number) => looks.add(look(delivered, 2), [waits(3)], now).acked;
  expect(acked(10, 1_000_000)).toBe(2);
  expect(acked(20, 1_030_000)).toBe(2);
  expect(acked(30, 1_060_000)).toBe(10);
  expect(acked(40, 1_089_999)).toBe(10);
  expect(acked(40, 1_090_000)).toBe(20);
  expect(looks.add(look(50, 45), [], 1_090_001)).toEqual({ acked: 45, waiting: [] });
  expect(looks.add(look(50, 1, "created again"), [waits(2)], 1_200_000).acked).toBe(1);
});

test("only the floor counts while nothing waits, and where nothing else is under way, all that is delivered", () => {
  const looks = new Looks(60_000);
  looks.add(look(10, 2), [], 1_000_000);
  expect(looks.add(look(20, 2), [], 1_060_000)).toEqual({ acked: 2, waiting: [] });
  const done = { ...look(20, 2), num_ack_pending: 1 };
  expect(looks.add(done, [waits(3)], 1_060_001)).toEqual({ acked: 20, waiting: [waits(3)] });
});

test("an event that was noted lately still waits, since it may be under way again", () => {
  const looks = new Looks(60_000);
  looks.add(look(10, 2), [waits(3), waits(5)], 1_000_000);
  expect(looks.add(look(10, 2), [waits(5)], 1_060_000).waiting).toEqual([waits(3), waits(5)]);
  expect(looks.add(look(10, 3), [waits(5)], 1_060_001).waiting).toEqual([waits(5)]);
  expect(looks.add(look(10, 2), [], 1_120_002)).toEqual({ acked: 2, waiting: [] });
});
