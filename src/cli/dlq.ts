import type { Command } from "commander";
import {
  createDeadLetters,
  DEFAULT_RATE,
  type DeadLetterOperations,
  deadLetterAsJson,
  deadLetterAsLine,
  deadLetterAsText,
  FILTERS,
  type Filters,
  grouped,
  groupsAsText,
  type Removal,
  type Report,
  removalAsText,
  reportAsText,
  type Selection,
  type StoredDeadLetter,
  selectionFault,
} from "../operators/dead-letters/index.js";
import { missingUpstreams } from "../roles/connections.js";
import { type Opening, openLog, runJob, withConnections } from "./bootstrap.js";
import { argumentOf, exitWith, JSON_OPTION, parseRate, parseSeq } from "./options.js";
import { defineOne } from "./records.js";
import { confirm } from "./terminal.js";

interface ListOptions extends Filters {
  readonly json?: boolean;
  readonly ungrouped?: boolean;
}

interface ChangeOptions extends Filters {
  readonly json?: boolean;
  readonly all?: boolean;
  readonly dryRun?: boolean;
  readonly force?: boolean;
  /** Dead letters a second that `redrive` sends. */
  readonly rate?: number;
}

type Chosen = ChangeOptions & Selection;

export function define(dlq: Command): void {
  withFilters(dlq.command("ls"))
    .description("list dead letters, grouped by error, the biggest group first")
    .option("--ungrouped", "list one line for each dead letter, the oldest first")
    .addOption(JSON_OPTION)
    .action(exitWith(list));
  defineOne(dlq, DLQ, {
    name: "show",
    about: "show one dead letter: all its headers and its body",
    argument: ["<seq>", "its sequence in the stream DLQ", parseSeq],
    answer: async (deadLetters, seq) => {
      const deadLetter = await deadLetters.show(seq);
      return { json: deadLetterAsJson(deadLetter), text: deadLetterAsText(deadLetter) };
    },
  });
  withSelection(dlq.command("redrive"))
    .description("publish dead letters again, the oldest first; each is deleted once it is stored")
    .option("--rate <per second>", `dead letters a second at most (default: ${DEFAULT_RATE})`, parseRate)
    .addOption(JSON_OPTION)
    .action(selecting(redrive));
  withSelection(dlq.command("rm"))
    .description("delete dead letters for good; on a terminal it asks first")
    .option("-f, --force", "do not ask")
    .addOption(JSON_OPTION)
    .action(selecting(remove));
}

function withFilters(command: Command): Command {
  for (const [name, { option, schema }] of Object.entries(FILTERS))
    command.option(`--${name} ${option[0]}`, option[1], argumentOf<unknown>(schema));
  return command;
}

const withSelection = (command: Command): Command =>
  withFilters(command)
    .argument("[seqs...]", "sequences in the stream DLQ", (text, seqs: number[] | undefined) => [
      ...(seqs ?? []),
      parseSeq(text),
    ])
    .option("--all", "all dead letters")
    .option("--dry-run", "say what would be done, and change nothing");

const selecting =
  (work: (chosen: Chosen) => Promise<number>) => (seqs: number[], options: ChangeOptions, command: Command) => {
    const chosen = { ...options, seqs };
    const fault = selectionFault(chosen);
    if (fault) command.error(`error: ${fault}`);
    return exitWith(work)(chosen);
  };

async function openDeadLetters(opening: Opening): Promise<DeadLetterOperations> {
  const { nats, publish, upstreams } = await openLog(opening);
  const reachable = missingUpstreams(opening.config.upstreams).length === 0;
  return createDeadLetters({ nats, publish, upstreams: reachable ? () => upstreams("operator") : undefined });
}

const DLQ = { name: "dlq", open: openDeadLetters };

function list(options: ListOptions): Promise<number> {
  return withConnections(DLQ, async (deadLetters) => {
    const listed = deadLetters.list(options, { bodies: !options.json && !options.ungrouped });
    if (options.json) await printJsonArray(listed);
    else if (options.ungrouped) for await (const deadLetter of listed) console.log(deadLetterAsLine(deadLetter));
    else console.log(groupsAsText(await grouped(listed)));
    return 0;
  });
}

/** Prints one dead letter a line, as they are read: there may be very many. */
async function printJsonArray(deadLetters: AsyncIterable<StoredDeadLetter>): Promise<void> {
  let before = "[";
  for await (const { summary } of deadLetters) {
    process.stdout.write(`${before}\n${JSON.stringify(summary)}`);
    before = ",";
  }
  process.stdout.write(before === "[" ? "[]\n" : "\n]\n");
}

/** Ends with exit code 1 if a dead letter was refused, or failed. */
function redrive({ rate, dryRun = false, json, ...selection }: Chosen): Promise<number> {
  return runJob({ ...DLQ, json }, async ({ connections: deadLetters, stopping, say }) => {
    const seqs = await deadLetters.select(selection);
    const onProgress = (now: Report): void => say(() => `${lengthOf(now)} of ${seqs.length} dead letters tried`);
    const report = await deadLetters.redrive(seqs, { rate, dryRun, stopping, onProgress });
    const failed = report.refused.length + report.failed.length > 0;
    return { json: asJson(report, dryRun), text: reportAsText(report, dryRun), failed };
  });
}

const lengthOf = (report: Report): number => Object.values(report).reduce((sum, list) => sum + list.length, 0);

/** Ends with exit code 1 if a dead letter could not be deleted, or the question was not answered with yes. */
function remove({ dryRun = false, force, json, ...selection }: Chosen): Promise<number> {
  return runJob({ ...DLQ, json }, async ({ connections: deadLetters, stopping, say }) => {
    const seqs = await deadLetters.select(selection);
    if (!force && !dryRun && seqs.length > 0 && !(await mayDelete(seqs.length))) return undefined;
    const onProgress = ({ removed }: Removal): void =>
      say(() => `${removed.length} of ${seqs.length} dead letters deleted`);
    const removal = await deadLetters.remove(seqs, { dryRun, stopping, onProgress });
    return { json: asJson(removal, dryRun), text: removalAsText(removal, dryRun), failed: removal.failed.length > 0 };
  });
}

async function mayDelete(count: number): Promise<boolean> {
  if (await confirm(`Delete ${count} dead letter${count === 1 ? "" : "s"} for good?`)) return true;
  console.error("nothing was deleted");
  return false;
}

const asJson = (outcome: object, dryRun: boolean): object => (dryRun ? { ...outcome, dry_run: true } : outcome);
