import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { ask, listen, type Running, send, start, token } from "../support/gateway.js";

let versions = 0;

async function set({ standings }: Running, user_id: string, standing: "active" | "limited" | "suspended", until = 0) {
  await standings.record([{ user_id, standing, until, version: ++versions }]);
  await standings.refresh();
}

async function statusOf({ url }: Running, user: string): Promise<number | undefined> {
  return (await ask(url, { authorization: `Bearer ${await token(user)}` })).response.statusCode;
}

test("the streams of a suspended user end, and new ones are refused until it is lifted", async () => {
  const running = await start();
  const [ended, limited, other] = [
    await listen(running, "ada"),
    await listen(running, "bob"),
    await listen(running, "cat"),
  ];
  await set(running, "ada", "suspended");
  await set(running, "bob", "limited");
  await eventually(() => ended.ended, "the end of the stream");
  expect([limited.ended, other.ended]).toEqual([false, false]);
  expect([await statusOf(running, "ada"), await statusOf(running, "bob")]).toEqual([403, 200]);
  await set(running, "ada", "active");
  expect(await statusOf(running, "ada")).toBe(200);
  await set(running, "ada", "suspended", Date.now() + 300);
  expect(await statusOf(running, "ada")).toBe(403);
  await eventually(async () => (await statusOf(running, "ada")) === 200, "the end of the suspension");
});

// Fan-out leaves them out, too: a stream lacks them although one of the two fails to.
test("a stream leaves out drops of the suspended of which fan-out tells, and reposts of them and replies to them", async () => {
  const running = await start();
  const raw = await listen(running, "ada");
  await set(running, "bob", "suspended");
  for (const [drop, by] of Object.entries({ own: "bob", repost: "cat,bob", reply: "cat,,bob", other: "cat" }))
    await send("ada", drop, "new_drop", { by });
  await raw.sees(["other"]);
  await set(running, "bob", "active");
  await send("ada", "later", "new_drop", { by: "bob" });
  await raw.sees(["other", "later"]);
});
