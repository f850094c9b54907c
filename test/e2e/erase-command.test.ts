import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { temporaryFolder } from "../support/brokers.js";
import { jsonOf, startCommand } from "../support/command.js";
import { becomes } from "../support/eventually.js";
import { testWithStack } from "../support/stack.js";

interface Shown {
  readonly user_id: string;
  readonly status: string;
  readonly requested_at: string | null;
  readonly completed_at: string | null;
  readonly steps: readonly { readonly name: string; readonly done: boolean; readonly left: number }[];
}

testWithStack("`erase` erases a user, and lists and shows erasures", { service: false }, async (stack) => {
  const folder = await temporaryFolder("erase");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
  const service = await stack.start({ roles: "users", env: { ...own, TIMELINE_DATA_DIR: join(folder, "data") } });
  const env = { TIMELINE_USER_SERVICE_ADDR: service.grpcAddress };
  const run = async (...args: string[]) => {
    const command = startCommand(stack, args, env);
    const { code } = await command.exited;
    return { code, output: command.output(), errors: command.errors() };
  };
  const user = "ünï ada";
  expect(await run("erase", "ls")).toMatchObject({ code: 0, output: "nobody is erased\n" });
  expect(await run("erase", "show", user)).toMatchObject({ code: 1, errors: `the user ${user} is not erased\n` });
  expect(await run("erase", "user", user)).toMatchObject({
    ...{ code: 1, output: "", errors: expect.stringContaining("add --yes") },
  });
  expect(await run("erase", "show", user)).toMatchObject({ code: 1 });

  const begun = await jsonOf<Shown>(stack, ["erase", "user", user, "--yes"], { env });
  expect(begun).toMatchObject({ user_id: user, requested_at: expect.any(String) });
  await becomes(async () =>
    expect(await jsonOf<Shown>(stack, ["erase", "show", user], { env })).toMatchObject({ status: "completed" }),
  );
  const again = await jsonOf<Shown>(stack, ["erase", "user", user, "--yes"], { env });
  expect(again).toEqual(await jsonOf<Shown>(stack, ["erase", "show", user], { env }));
  expect(again).toMatchObject({ requested_at: begun.requested_at, completed_at: expect.any(String) });
  expect((await run("erase", "user", "bob", "--yes")).code).toBe(0);
  await becomes(async () => {
    const listed = await jsonOf<Shown[]>(stack, ["erase", "ls"], { env });
    expect(listed.map(({ user_id, status }) => `${user_id} ${status}`)).toEqual(["bob completed", `${user} completed`]);
  });
  expect((await jsonOf<Shown[]>(stack, ["erase", "ls", "--limit", "1"], { env })).map((one) => one.user_id)).toEqual([
    "bob",
  ]);
  expect((await run("erase", "ls")).output).toMatch(new RegExp(`^completed since \\S+Z {2}bob\n.* {2}${user}\n$`));
  expect((await run("erase", "show", user)).output).toContain("  profile: done\n");
});

testWithStack("a users service that erases nobody publishes user_erased itself", {}, async (stack) => {
  const refused = startCommand(stack, ["erase", "user", "carol", "--yes"]);
  expect([(await refused.exited).code, refused.errors()]).toEqual([1, expect.stringContaining("publish user_erased")]);
  await stack.redis.publish("user_erased", JSON.stringify({ user_id: "carol", version: 1 }));
  await becomes(async () => {
    const [one] = await jsonOf<Shown[]>(stack, ["erase", "ls"]);
    expect(one).toMatchObject({ user_id: "carol", requested_at: null, completed_at: null });
  });
});
