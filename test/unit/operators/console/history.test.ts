import { expect, test } from "@jest/globals";
import { keepHistory } from "../../../../src/operators/console/history.js";
import { becomes } from "../../../support/eventually.js";

test("the last samples are kept, without those that failed", async () => {
  let at = 0;
  const history = keepHistory(
    async () => {
      if (++at === 3) throw new Error("NATS is unavailable");
      return { at: Math.min(at, 5), streams: [], consumers: [] };
    },
    { everyMs: 1, kept: 2 },
  );
  await becomes(async () => expect((await history.read()).map((sample) => sample.at)).toEqual([5, 5]));
  await history.close();
});
