import type { Command } from "commander";
import { printable } from "../kernel/errors.js";
import { createBucket, createErased, createLogOut } from "../state/index.js";
import { type Opening, openLog, openRedisAlone } from "./bootstrap.js";
import { parseUserId } from "./options.js";
import { defineOne } from "./records.js";

const LOG_OUT = {
  name: "streams",
  open: async (opening: Opening) => {
    const { nats, publish } = await openLog(opening);
    const { scripts } = await openRedisAlone(opening);
    return createLogOut({ scripts, publish, erased: createErased(scripts, createBucket(nats, publish, "ERASED")) });
  },
};

export function define(streams: Command): void {
  defineOne(streams, LOG_OUT, {
    name: "end",
    about: "end all event streams of a user, and refuse the tokens that were issued before",
    argument: ["<user>", "the user id", parseUserId],
    answer: async (logOut, user) => {
      const json = await logOut(user);
      const text = `${printable(user)}: streams end, and tokens issued before ${json.refused_before} are refused`;
      return { json, text };
    },
  });
}
