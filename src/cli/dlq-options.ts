import { Command, type CommanderError, InvalidArgumentError } from "commander";
import type { z } from "zod";
import { DEFAULT_RATE } from "../dead-letters/redrive.js";
import { FIELDS, selectionFault } from "../dead-letters/selection.js";
import type { ChangeOptions, Chosen, ListOptions } from "./dlq.js";

/** Exit code of a command line that makes no sense, as of bad configuration. */
const USAGE = 2;

/** `dlq` with all below it; what the commands do is loaded when one is called. */
export function dlqCommand(): Command {
  const dlq = new Command("dlq").description("look at dead letters, send them back to work, or delete them");
  filtered(dlq.command("ls"))
    .description("list letters, grouped by error, the biggest group first")
    .option("--letters", "list single letters, the oldest first")
    .action((options: ListOptions) => ended(async () => (await import("./dlq.js")).list(options)));
  dlq
    .command("show")
    .description("show one letter: all its headers and its body")
    .argument("<seq>", "its sequence in the stream DLQ", seqOf)
    .option("--json", "print JSON")
    .action((seq: number, options: ListOptions) => ended(async () => (await import("./dlq.js")).show(seq, options)));
  changing(dlq.command("redrive"))
    .description("send letters back to work: each is published again, then deleted; the oldest first")
    .option("--rate <per second>", `letters a second at most (default: ${DEFAULT_RATE})`, rateOf)
    .action((seqs: number[], options: ChangeOptions, command: Command) =>
      ended(async () => (await import("./dlq.js")).redriveChosen(chosen(seqs, options, command))),
    );
  changing(dlq.command("rm"))
    .description("delete letters for good; on a terminal it asks first")
    .option("-f, --force", "do not ask")
    .action((seqs: number[], options: ChangeOptions, command: Command) =>
      ended(async () => (await import("./dlq.js")).removeChosen(chosen(seqs, options, command))),
    );
  for (const command of [dlq, ...dlq.commands]) command.showHelpAfterError().exitOverride(usageError);
  return dlq;
}

/** Commander has said what is wrong; only the exit code is ours. */
function usageError(error: CommanderError): never {
  process.exit(error.exitCode === 0 ? 0 : USAGE);
}

const filtered = (command: Command): Command =>
  command
    .option("--json", "print JSON")
    .option("--reason <reason>", "only letters of this reason", by(FIELDS.reason))
    .option("--since <when>", "only letters that failed then or later: 15m, 2h, 7d (ago), or a date", by(FIELDS.since))
    .option("--event <event>", "only letters of this event", by(FIELDS.event))
    .option("--error <text>", "only letters whose error contains this text", by(FIELDS.error));

const changing = (command: Command): Command =>
  filtered(command)
    .argument("[seqs...]", "sequences in the stream DLQ", (text, seqs: number[] | undefined) => [
      ...(seqs ?? []),
      seqOf(text),
    ])
    .option("--all", "all letters")
    .option("--dry-run", "say what would be done, and change nothing");

function chosen(seqs: readonly number[], options: ChangeOptions, command: Command): Chosen {
  const selection = { ...options, seqs };
  const fault = selectionFault(selection);
  if (fault) command.error(`error: ${fault}`);
  return selection;
}

/** The exit code is set, not forced, so that all of the output gets out. */
async function ended(work: () => Promise<number>): Promise<void> {
  process.exitCode = await work();
}

function by<Output>(schema: z.ZodType<Output>): (value: unknown) => Output {
  return (value) => {
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    throw new InvalidArgumentError(result.error.issues.map(({ message }) => message).join("; "));
  };
}

const numberIn = (text: string): number => (/^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN);
const seqOf = (text: string): number => by(FIELDS.seq)(numberIn(text));
const rateOf = (text: string): number => by(FIELDS.rate)(numberIn(text));

/** Reads a time, ago or as a date, into ms since the epoch. */
export const when = (text: string): number => by(FIELDS.since)(text) as number;
