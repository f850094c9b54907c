import { status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { AppError } from "../../../src/kernel/errors.js";
import { follows } from "../../../src/upstreams/follows.js";

const followed = Array.from({ length: 2_500 }, (_, n) => `u${n}`);

function upstreamsOf(answer: () => readonly boolean[]) {
  let pages = 0;
  return {
    pages: () => pages,
    isFollowing: async () => answer(),
    following: async ({ size, token }: { size: number; token: string }) => {
      pages++;
      const end = Number(token) + size;
      const next = end < followed.length ? String(end) : "";
      return { ids: followed.slice(Number(token), end), next, total: followed.length };
    },
  };
}

const failing = (code: status) => () => {
  throw new AppError("failed", "IsFollowing", { cause: Object.assign(new Error("refused"), { code }) });
};

test("a users service with IsFollowing is asked for no list", async () => {
  for (const answer of [true, false]) {
    const upstreams = upstreamsOf(() => [answer]);
    expect(await follows(upstreams, "ada", "u2400")).toBe(answer);
    expect(upstreams.pages()).toBe(0);
  }
});

test("without IsFollowing the list is read up to the user", async () => {
  const upstreams = upstreamsOf(failing(status.UNIMPLEMENTED));
  expect(await follows(upstreams, "ada", "u5")).toBe(true);
  expect(upstreams.pages()).toBe(1);
  expect(await follows(upstreams, "ada", "eve")).toBe(false);
  expect(upstreams.pages()).toBe(4);
});

test("a users service that is away is not asked for the list", async () => {
  const upstreams = upstreamsOf(failing(status.UNAVAILABLE));
  await expect(follows(upstreams, "ada", "u5")).rejects.toMatchObject({ code: "failed" });
  expect(upstreams.pages()).toBe(0);
});
