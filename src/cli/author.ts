import type { Command } from "commander";
import { AUTHORS } from "../contracts/tables.js";
import { authorAsJson, type ModeChoice } from "../state/index.js";
import { type Opening, openRedisAlone } from "./bootstrap.js";
import { parseUserId } from "./options.js";
import { defineList, defineOne } from "./records.js";

const CHOICES: Readonly<Record<ModeChoice, string>> = {
  pull: "write an author's drops once, whatever their followers; homes merge them when they are read",
  tier: "write an author's drops into homes, first of those who listen, then of recent readers, then of all others",
  push: "write an author's drops into the homes of all followers, however many",
  auto: "let the number of followers, and of writes to their homes, decide again",
};

const AUTHOR = {
  name: "author",
  open: async (opening: Opening) => (await openRedisAlone(opening)).state.openAuthorStates(opening.config.fanout),
};

export function define(author: Command): void {
  defineList(author, AUTHOR, {
    about: "list the authors who are tiered, pulled or about to change, and those an operator has chosen for",
    table: AUTHORS,
    read: async (registry) => [...(await registry.list())].map(([id, state]) => authorAsJson(id, state)),
  });
  for (const [choice, about] of Object.entries(CHOICES))
    defineOne(author, AUTHOR, {
      name: choice,
      about,
      argument: ["<id>", "the author's user id", parseUserId],
      answer: async (registry, id) => {
        const json = authorAsJson(id, await registry.choose(id, choice as ModeChoice));
        return { json, text: AUTHORS.line(json) };
      },
    });
}
