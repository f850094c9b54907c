import { expect } from "@jest/globals";
import { jsonOf, startCommand } from "../support/command.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted, related, unfollowed } from "../support/timeline-events.js";
import { homeKey } from "../support/timeline-keys.js";

interface Explained {
  readonly verdict: string;
  readonly why: string;
  readonly author?: string;
  readonly admitted: readonly { readonly event: string }[];
}

const explained = async (stack: Stack, drop: string, ...more: readonly string[]): Promise<Explained> =>
  jsonOf<Explained>(stack, ["timeline", "explain", "ada", drop, ...more]);

testWithStack("a command says why a drop is in a home or not, and exits 1 where that is wrong", {}, async (stack) => {
  const { world, publish, streams, redis, reads } = stack;
  const now = Date.now();
  const post = async (drop_id: string, user_id: string, recipients?: readonly string[]): Promise<void> => {
    const visibility = recipients ? ("direct" as const) : ("public" as const);
    const drop = { drop_id, user_id, visibility, created_at: now, ...(recipients && { recipients }) };
    world.post(drop);
    await publish(created(drop));
  };
  for (const author of ["alice", "bob", "carol"]) world.follow("ada", author);
  for (const drop of ["shown", "lost", "deleted"]) await post(drop, "alice");
  await post("direct", "alice", ["zoe"]);
  await post("stranger's", "zoe");
  await post("unfollowed", "bob");
  await post("muted", "carol");
  await streams.settled(7);
  expect((await reads.home("ada")).drop_ids).toHaveLength(5);
  world.remove("deleted");
  world.mute("ada", "carol");
  await publish(
    deleted("deleted", "alice"),
    unfollowed("ada", "bob", world.unfollow("ada", "bob")),
    related("user_muted", "ada", "carol"),
  );
  await streams.settled(10);
  await reads.home("ada");

  expect(await explained(stack, "shown")).toMatchObject({ verdict: "shown", author: "alice" });
  expect(await explained(stack, "deleted")).toMatchObject({
    verdict: "left-out",
    why: "it is deleted",
    admitted: [{ event: "drop_created" }, { event: "drop_deleted" }],
  });
  expect((await explained(stack, "direct")).why).toBe("it is a direct drop for others");
  for (const drop of ["stranger's", "unfollowed"])
    expect((await explained(stack, drop)).why).toBe("the user does not follow the author");
  expect((await explained(stack, "muted")).why).toBe("a block or a mute hides it from the user");
  expect((await explained(stack, "never")).verdict).toBe("unknown");
  expect(await jsonOf(stack, ["timeline", "explain", "adda", "lost"])).toMatchObject({
    ...{ verdict: "unknown", unknown_users: ["adda"], created_at: now, is_applied: true },
    why: 'the upstreams know no user "adda": correct the id',
  });
  expect((await explained(stack, "never", "--author", "alise")).why).toContain('no user "alise"');

  await redis.zrem(homeKey("ada"), "lost");
  const wrong = startCommand(stack, ["timeline", "explain", "ada", "lost"]);
  expect((await wrong.exited).code).toBe(1);
  expect(wrong.output()).toMatch(/^"lost" in the home of "ada": missing: the home must have it, and lacks it\n/);
  await redis.zadd(homeKey("ada"), now, "unfollowed");
  const left = startCommand(stack, ["timeline", "explain", "ada", "unfollowed"]);
  expect((await left.exited).code).toBe(1);
  expect(left.output()).toContain(": unexpected: ");
});
