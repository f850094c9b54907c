import type { Command } from "commander";
import { printable } from "../kernel/errors.js";
import { type AtLimit, listAtLimit } from "../state/index.js";
import { openRedisAlone, withConnections } from "./bootstrap.js";
import { exitWith, JSON_OPTION } from "./options.js";

export function define(limits: Command): void {
  limits
    .command("ls")
    .description("list the users who are at a limit now, by TIMELINE_LIMIT_* as it is set here")
    .addOption(JSON_OPTION)
    .action(exitWith(list));
}

const LIMITS = { name: "limits", open: openRedisAlone };

function list({ json }: { readonly json?: boolean }): Promise<number> {
  return withConnections(LIMITS, async ({ scripts }, { posts, users }) => {
    const { limitDrops, limitSameBody, limitReactions } = posts;
    const limits = {
      drops: limitDrops,
      "same-body": limitSameBody,
      follows: users.limitFollows,
      reactions: limitReactions,
    };
    const rows: ReturnType<typeof row>[] = [];
    for await (const atLimit of listAtLimit(scripts, limits)) {
      rows.push(row(atLimit));
      if (!json) console.log(asLine(row(atLimit)));
    }
    if (json) console.log(JSON.stringify(rows));
    else if (rows.length === 0) console.log("nobody is at a limit");
    return 0;
  });
}

const row = ({ user, kind, used, limit, freeAt }: AtLimit) => ({
  user_id: user,
  limit: kind,
  used,
  most: limit.most,
  within: limit.within,
  free_at: new Date(freeAt).toISOString(),
});

const asLine = ({ user_id, limit, used, most, within, free_at }: ReturnType<typeof row>): string =>
  printable(`${user_id}  ${limit}  ${used} of ${most} within ${within}, the next one at ${free_at}`);
