import type { Command } from "commander";
import { printable } from "../kernel/errors.js";
import { createBucket, createErased, createLogOut } from "../state/index.js";
import { type Opening, openLog, openRedisAlone, withConnections } from "./bootstrap.js";
import { exitWith, JSON_OPTION, parseUserId } from "./options.js";

export function define(streams: Command): void {
  streams
    .command("end")
    .description("end all event streams of a user, and refuse the tokens that were issued before")
    .argument("<user>", "the user id", parseUserId)
    .addOption(JSON_OPTION)
    .action(exitWith(end));
}

const LOG_OUT = {
  name: "streams",
  open: async (opening: Opening) => {
    const { nats, publish } = await openLog(opening);
    const { scripts } = await openRedisAlone(opening);
    return createLogOut({ scripts, publish, erased: createErased(scripts, createBucket(nats, publish, "ERASED")) });
  },
};

function end(user: string, { json }: { readonly json?: boolean }): Promise<number> {
  return withConnections(LOG_OUT, async (logOut) => {
    const ended = await logOut(user);
    if (json) console.log(JSON.stringify(ended));
    else console.log(`${printable(user)}: streams end, and tokens issued before ${ended.refused_before} are refused`);
    return 0;
  });
}
