import type { Command } from "commander";
import { membersLimit } from "../contracts/lists.js";
import { LIMITS } from "../contracts/tables.js";
import { openRedisAlone } from "./bootstrap.js";
import { defineList } from "./records.js";

export function define(limits: Command): void {
  defineList(
    limits,
    { name: "limits", open: openRedisAlone },
    {
      about: "list the users who are at a limit now, by TIMELINE_LIMIT_* as it is set here",
      table: LIMITS,
      read: ({ state }, { config: { posts, users } }) =>
        state.limits.listReached({
          drops: posts.limitDrops,
          "same-body": posts.limitSameBody,
          follows: users.limitFollows,
          members: membersLimit(users.limitFollows),
          reactions: posts.limitReactions,
        }),
    },
  );
}
