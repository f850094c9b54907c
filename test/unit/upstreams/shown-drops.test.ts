import { status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { GetDropResponse, type GetDropsRequest } from "../../../src/gen/avion/posts.js";
import { createShownDrops } from "../../../src/upstreams/shown-drops.js";

const IDS = Array.from({ length: 100 }, (_, n) => `d${n}`);
const refused = (code: status): Error => Object.assign(new Error(status[code]), { code });
const isCode = (error: unknown, code: status): boolean => (error as { code?: status }).code === code;

/** A posts service that refuses more than `most` drops at once, and each call for a drop in `bad`. */
function service({ most = 100, bad = [] as string[], code = status.RESOURCE_EXHAUSTED } = {}) {
  const calls: GetDropsRequest[] = [];
  let atOnce = 0;
  let retries = 0;
  const read = createShownDrops({
    call: async (request) => {
      calls.push(request);
      if (++atOnce > 1) throw new Error("two calls at once");
      await new Promise((resolve) => setImmediate(resolve));
      atOnce--;
      if (request.drop_ids.length > most || request.drop_ids.some((id) => bad.includes(id))) throw refused(code);
      return { results: request.drop_ids.map((drop_id) => GetDropResponse.fromPartial({ drop: { drop_id } })) };
    },
    isExhausted: (error) => isCode(error, status.RESOURCE_EXHAUSTED),
    isInvalidArgument: (error) => isCode(error, status.INVALID_ARGUMENT),
    isUnimplemented: (error) => isCode(error, status.UNIMPLEMENTED),
  });
  const ask = (retriesLeft = 1_000, ids: readonly string[] = IDS) =>
    read({
      ...{ viewer: "ada", ids, deadline: 7 },
      beforeRetry: async () => {
        if (++retries > retriesLeft) throw new Error("enough");
      },
    });
  return { calls, ask, retries: () => retries };
}

test("a page of drops is one call, for the viewer, with their states", async () => {
  const { calls, ask } = service();
  expect([...(await ask()).keys()]).toEqual(IDS);
  expect(calls).toEqual([{ drop_ids: IDS, viewer_id: "ada", with_state: true }]);
});

test.each([status.RESOURCE_EXHAUSTED, status.INVALID_ARGUMENT])(
  "drops that are too many for a message are asked for by halves, one call at a time (status %s)",
  async (code) => {
    const { calls, ask, retries } = service({ most: 12, code });
    expect([...(await ask()).keys()]).toEqual(IDS);
    expect(calls.map(({ drop_ids }) => drop_ids.length)).toEqual([100, 50, 25, ...Array(8).fill(12), 4]);
    expect(retries()).toBe(11);
  },
);

test("an id that the service refuses is left out, and costs a search for it", async () => {
  const { calls, ask } = service({ bad: ["d40"], code: status.INVALID_ARGUMENT });
  expect([...(await ask()).keys()]).toEqual(IDS.filter((id) => id !== "d40"));
  expect(calls.length).toBeLessThan(20);
});

test("a service that refuses every call is asked once for each size, and its error is that of the page", async () => {
  const { calls, ask } = service({ most: 0 });
  await expect(ask()).rejects.toMatchObject({ code: status.RESOURCE_EXHAUSTED });
  expect(calls.map(({ drop_ids }) => drop_ids.length)).toEqual([100, 50, 25, 12, 6, 3, 1]);
});

test("the caller ends a read that takes too many calls", async () => {
  const { calls, ask } = service({ most: 12 });
  await expect(ask(3)).rejects.toThrow("enough");
  expect(calls).toHaveLength(4);
});

test("a service without the method has no drops; any other failure fails the page", async () => {
  expect((await service({ most: 0, code: status.UNIMPLEMENTED }).ask()).size).toBe(0);
  const { calls, ask } = service({ most: 0, code: status.UNAVAILABLE });
  await expect(ask()).rejects.toMatchObject({ code: status.UNAVAILABLE });
  expect(calls).toHaveLength(1);
});

test("an empty page needs no call", async () => {
  const { calls, ask } = service();
  expect((await ask(0, [])).size).toBe(0);
  expect(calls).toEqual([]);
});
