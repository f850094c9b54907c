import { expect, test } from "@jest/globals";
import { silent } from "../../../src/kernel/logger.js";
import { startGuard } from "../../../src/replay/guard.js";
import { eventually } from "../../support/facts.js";

/** One Redis whose data was lost since `lost`, and the only process that mends it. */
function scene(how: { readonly lost: number | undefined; readonly inCharge?: boolean }) {
  const trace: string[] = [];
  let lost = how.lost;
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const guard = startGuard({
    continuity: {
      check: async (from) => {
        trace.push(`check ${from}`);
        return lost;
      },
      mended: async (from) => {
        trace.push(`mended ${from}`);
        lost = undefined;
      },
    },
    log: silent,
    mending: {
      lease: { hold: async () => how.inCharge ?? true, release: async () => void trace.push("released") },
      readBacklogStart: async () => 9_000_000,
      replay: async ({ from }) => {
        trace.push(`replay since ${from}`);
        await opened;
        return 3;
      },
      observe: (events) => trace.push(`observed ${events}`),
    },
  });
  return { guard, trace, open };
}

test("where nothing was lost, how far the log is applied is noted", async () => {
  const { guard, trace } = scene({ lost: undefined });
  await eventually(() => trace.length > 0, "it looks");
  expect([trace[0], guard.broken()]).toEqual(["check 9000000", false]);
  await guard.close();
  expect(trace.at(-1)).toBe("released");
});

test("what was lost is replayed from a minute before, and broken until that is done", async () => {
  const { guard, trace, open } = scene({ lost: 5_000_000 });
  await eventually(() => trace.length === 2, "it replays");
  expect([trace, guard.broken()]).toEqual([["check 9000000", "replay since 4940000"], true]);
  open();
  await eventually(() => !guard.broken(), "it is mended");
  expect(trace.slice(2, 4)).toEqual(["mended 9000000", "observed 3"]);
  await guard.close();
});

test("who is not in charge only looks, and knows that it is broken", async () => {
  const { guard, trace } = scene({ lost: 5_000_000, inCharge: false });
  await eventually(() => guard.broken(), "it knows");
  expect(trace).toEqual(["check undefined"]);
  await guard.close();
});

test("a link that was lost is in doubt until the next look", async () => {
  const { guard, trace } = scene({ lost: undefined });
  await eventually(() => trace.length > 0, "it looks");
  guard.doubt();
  expect(guard.broken()).toBe(true);
  await eventually(() => !guard.broken(), "the next look");
  await guard.close();
});
