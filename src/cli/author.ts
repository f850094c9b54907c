import type { Command } from "commander";
import { printable } from "../kernel/errors.js";
import type { HeldState, Registry, Wish } from "../pull/index.js";
import { openRegistry, withConnections } from "./bootstrap.js";
import { parseUserId } from "./option-values.js";
import { exitWith, JSON_OPTION } from "./options.js";

interface Options {
  readonly json?: boolean;
}

const WISHES: Readonly<Record<Wish, string>> = {
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
  for (const [wish, about] of Object.entries(WISHES)) {
    author
      .command(wish)
      .description(about)
      .argument("<id>", "the author's user id", parseUserId)
      .addOption(JSON_OPTION)
      .action(exitWith((id: string, options: Options) => choose(id, wish as Wish, options)));
  }
}

const withRegistry = (run: (registry: Registry) => Promise<number>): Promise<number> =>
  withConnections({ name: "author", open: openRegistry }, run);

function list({ json }: Options): Promise<number> {
  return withRegistry(async (registry) => {
    const held = [...(await registry.list())].map(([author, state]) => row(author, state));
    if (json) console.log(JSON.stringify(held));
    else if (held.length === 0) console.log("every author is pushed");
    else for (const one of held) console.log(asLine(one));
    return 0;
  });
}

function choose(id: string, wish: Wish, { json }: Options): Promise<number> {
  return withRegistry(async (registry) => {
    const chosen = row(id, await registry.choose(id, wish));
    console.log(json ? JSON.stringify(chosen) : asLine(chosen));
    return 0;
  });
}

const row = (author_id: string, held: HeldState | undefined) => ({
  author_id,
  state: held?.state ?? "pushed",
  by: held?.by ?? "count",
  since: held ? new Date(held.since).toISOString() : null,
});

const REASONS: Readonly<Record<HeldState["by"], string>> = {
  hand: "an operator",
  count: "followers",
  pressure: "writes to homes",
};

function asLine({ author_id, state, by, since }: ReturnType<typeof row>): string {
  return printable(`${author_id}  ${state} by ${REASONS[by]}${since === null ? "" : ` since ${since}`}`);
}
