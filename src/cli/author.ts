import type { Command } from "commander";
import { printable } from "../kernel/errors.js";
import { authorAsJson, type ModeChoice, type StoredState } from "../state/index.js";
import { openRegistry, withConnections } from "./bootstrap.js";
import { exitWith, JSON_OPTION, parseUserId } from "./options.js";
import { printList } from "./terminal.js";

interface Options {
  readonly json?: boolean;
}

const CHOICES: Readonly<Record<ModeChoice, string>> = {
  pull: "write an author's drops once, whatever their followers; homes merge them when they are read",
  tier: "write an author's drops into homes, first of those who listen, then of recent readers, then of all others",
  push: "write an author's drops into the homes of all followers, however many",
  auto: "let the number of followers, and of writes to their homes, decide again",
};

export function define(author: Command): void {
  author
    .command("ls")
    .description("list the authors who are tiered, pulled or about to change, and those an operator has chosen for")
    .addOption(JSON_OPTION)
    .action(exitWith(list));
  for (const [choice, about] of Object.entries(CHOICES)) {
    author
      .command(choice)
      .description(about)
      .argument("<id>", "the author's user id", parseUserId)
      .addOption(JSON_OPTION)
      .action(exitWith((id: string, options: Options) => choose(id, choice as ModeChoice, options)));
  }
}

const AUTHOR = { name: "author", open: openRegistry };

function list({ json }: Options): Promise<number> {
  return withConnections(AUTHOR, async (registry) => {
    const stored = [...(await registry.list())].map(([author, state]) => authorAsJson(author, state));
    return printList(stored, { json, none: "every author is pushed", asLine });
  });
}

function choose(id: string, choice: ModeChoice, { json }: Options): Promise<number> {
  return withConnections(AUTHOR, async (registry) => {
    const chosen = authorAsJson(id, await registry.choose(id, choice));
    console.log(json ? JSON.stringify(chosen) : asLine(chosen));
    return 0;
  });
}

const REASONS: Readonly<Record<StoredState["by"], string>> = {
  hand: "an operator",
  count: "followers",
  pressure: "writes to homes",
};

function asLine({ author_id, state, by, since }: ReturnType<typeof authorAsJson>): string {
  return printable(`${author_id}  ${state} by ${REASONS[by]}${since === null ? "" : ` since ${since}`}`);
}
