import type { Command } from "commander";
import { printable } from "../kernel/errors.js";
import { openState } from "./bootstrap.js";
import { parseUserId } from "./options.js";
import { defineOne } from "./records.js";

export function define(streams: Command): void {
  defineOne(
    streams,
    { name: "streams", open: openState },
    {
      name: "end",
      about: "end all event streams of a user, and refuse the tokens that were issued before",
      argument: ["<user>", "the user id", parseUserId],
      answer: async ({ state }, user) => {
        const json = await state.streams.logOut(user);
        const text = `${printable(user)}: streams end, and tokens issued before ${json.refused_before} are refused`;
        return { json, text };
      },
    },
  );
}
