import { expect, test } from "@jest/globals";
import { createBoundedQueue } from "../../../src/kernel/concurrency.js";
import { readMemberLists } from "../../../src/users/member-lists.js";

test("the members of one user's lists are read in half of the places, and those of another user do not wait", async () => {
  let go: () => void = () => undefined;
  const waiting = new Promise<void>((resolve) => {
    go = resolve;
  });
  let begun = 0;
  const reader = async ({ user_id }: { readonly user_id: string }) => {
    if (user_id !== "ada") return [{ id: "bob", followed: true }];
    begun++;
    await waiting;
    return [];
  };
  const { getListReader } = readMemberLists({
    memberLists: { reader },
    bounded: createBoundedQueue({ atOnce: 4, waiting: 100 }),
  } as unknown as Parameters<typeof readMemberLists>[0]);
  const all = Array.from({ length: 50 }, (_, n) => getListReader({ user_id: "ada", list_id: `l${n}` }));
  const answer = await getListReader({ user_id: "eve", list_id: "l" });
  expect(answer).toEqual({ owner_id: "eve", member_ids: ["bob"], followed_ids: ["bob"] });
  expect(begun).toBe(2);
  go();
  await Promise.all(all);
});
