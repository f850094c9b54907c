import { expect, test } from "@jest/globals";
import { GetTimelineResponse } from "../../../src/gen/avion/timeline.js";
import { silent } from "../../../src/kernel/logger.js";
import { withNewer } from "../../../src/reads/positions.js";

const context = { deadline: Number.POSITIVE_INFINITY, traced: <T>(work: () => Promise<T>) => work() };

/** Pages since the position are short or whole; other pages are whole. */
const read = async (isShort: boolean) => {
  const counting = withNewer(
    { positions: { of: async () => "d1" }, log: silent },
    () => "home",
    async ({ since_id }: { readonly user_id: string; readonly with_newer: boolean; readonly since_id?: string }) => {
      const part = { drop_ids: ["d3", "d2"], degraded: since_id !== undefined && isShort };
      return Buffer.from(GetTimelineResponse.encode(GetTimelineResponse.fromPartial(part)).finish());
    },
  );
  return GetTimelineResponse.decode(await counting({ user_id: "ada", with_newer: true }, context));
};

test("a page is degraded if its newer entries were counted on a degraded page", async () => {
  expect(await read(true)).toMatchObject({ drop_ids: ["d3", "d2"], newer: 2, degraded: true });
  expect(await read(false)).toMatchObject({ drop_ids: ["d3", "d2"], newer: 2, degraded: false });
});
