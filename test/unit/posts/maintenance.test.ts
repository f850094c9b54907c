import { expect, test } from "@jest/globals";
import { AppError } from "../../../src/kernel/errors.js";
import { silent } from "../../../src/kernel/logger.js";
import { type CalibrationDeps, createCalibration } from "../../../src/posts/maintenance.js";

/** Drops by their ids with how many reactions each has, and what is asked of them. */
function drops(reactions: Readonly<Record<string, number>>, fails: (ids: readonly string[]) => Error | undefined) {
  const asked: (readonly string[])[] = [];
  let walked = "";
  const deps: CalibrationDeps = {
    drops: {
      next: async (after, limit) =>
        Object.entries(reactions)
          .filter(([dropId]) => dropId > after)
          .slice(0, limit)
          .map(([drop_id, count]) => ({ drop_id, reactions: count })),
      calibrate: async (ids) => {
        asked.push(ids);
        const failure = fails(ids);
        if (failure) throw failure;
        return { corrected: ids.length, overdue: 0 };
      },
    },
    lease: {
      walkedTo: async () => walked,
      walkTo: async (dropId) => {
        walked = dropId;
      },
    },
    log: silent,
  };
  return { calibrate: createCalibration(deps), asked, walked: () => walked };
}

test("one statement reads a bounded number of reactions; a drop with more is compared alone", async () => {
  const { calibrate, asked } = drops({ a: 0, b: 99_000, c: 1_000, d: 1, e: 5_000_000, f: 0, g: 2 }, () => undefined);
  expect(await calibrate(10)).toEqual({ checked: 7, corrected: 7, overdue: 0 });
  expect(asked).toEqual([["a", "b", "c"], ["d"], ["e"], ["f", "g"]]);
});

test("drops that cannot be compared are skipped, but not while the database is unavailable", async () => {
  const stuck = drops({ a: 1, b: 5_000_000, c: 1 }, (ids) => (ids.includes("b") ? new Error("too slow") : undefined));
  expect(await stuck.calibrate(10)).toEqual({ checked: 3, corrected: 2, overdue: 0 });
  expect(stuck.asked).toHaveLength(3);
  const away = drops({ a: 1 }, () => new AppError("unavailable", "away"));
  await expect(away.calibrate(10)).rejects.toThrow("away");
  expect(away.walked()).toBe("");
});
