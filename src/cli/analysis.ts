import type { Command } from "commander";
import { createAnalysisOperations, type Unfinished } from "../analysis/index.js";
import { printable } from "../kernel/errors.js";
import { type Opening, openLog, withConnections } from "./bootstrap.js";
import { exitWith, JSON_OPTION, wholeNumber } from "./options.js";
import { printList } from "./terminal.js";

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 10_000;

interface ListOptions {
  readonly limit: number;
  readonly json?: boolean;
}

export function define(analysis: Command): void {
  analysis
    .command("ls")
    .description("list analyses that are not done: those that wait and then the dead letters, the oldest first")
    .option("--limit <count>", "maximum number of analyses", wholeNumber({ min: 1, max: MAX_LIMIT }), DEFAULT_LIMIT)
    .addOption(JSON_OPTION)
    .action(exitWith(list));
  analysis
    .command("show")
    .description("show the status of one analysis, and where its message is")
    .argument("<id>", "its analysis_id")
    .addOption(JSON_OPTION)
    .action(exitWith(show));
}

const ANALYSIS = {
  name: "analysis",
  open: async (opening: Opening) => createAnalysisOperations(await openLog(opening)),
};

function list({ limit, json }: ListOptions): Promise<number> {
  return withConnections(ANALYSIS, async (operations) => {
    const analyses = await operations.first(limit);
    return printList(analyses, { json, none: "no analysis waits, and there is no dead letter of one", asLine });
  });
}

function asLine({
  analysis_id,
  user_id,
  did,
  type,
  tier,
  status,
  since,
  stream,
  stream_seq,
  error,
}: Unfinished): string {
  const what = analysis_id === null ? "not understood" : `${analysis_id}  ${type} of ${did} for ${user_id} (${tier})`;
  const why = error === null ? "" : `: ${error}`;
  return printable(`${status} since ${since}  ${stream} ${stream_seq}  ${what}${why}`);
}

function show(id: string, { json }: { readonly json?: boolean }): Promise<number> {
  return withConnections(ANALYSIS, async (operations) => {
    const shown = await operations.show(id);
    const lines = Object.entries(shown).map(([name, value]) => `${name}: ${printable(String(value ?? "-"))}`);
    console.log(json ? JSON.stringify(shown) : lines.join("\n"));
    return 0;
  });
}
