import { Command, type CommanderError, InvalidArgumentError, Option } from "commander";
import { TIMELINES } from "../consistency/audit/ports.js";
import type { AuditCommand } from "./audit.js";
import { when } from "./dlq-options.js";
import type { RebuildCommand } from "./rebuild.js";
import type { ReplayCommand, Said } from "./replay.js";

/** Exit code of a command line that makes no sense, as of bad configuration. */
const USAGE = 2;
const MAX_RATE = 100_000;
/** A day's log of a small server takes minutes, and its upstreams hardly notice. */
const REPLAY_RATE = 1_000;
/** A rebuild asks the upstreams for everybody a user follows. */
const REBUILD_RATE = 50;
const AUDIT_USERS = 100;
const MOST_AUDITED = 1_000_000;

const said = (text: string): Said => ({ text, at: when(text) });

/** `replay`. */
export function replayCommand(): Command {
  return strict(
    new Command("replay")
      .description("apply a stretch of the log again; nobody is notified, and what stands already stays as it is")
      .requiredOption("--from <when>", "what was admitted from then on: 15m, 2h, 7d (ago), or a date", said)
      .option("--to <when>", "and before then (default: to the end)", said)
      .option("--rate <per second>", "events a second at most", rateOf, REPLAY_RATE)
      .option("--restart", "begin anew where the same command was stopped before its end")
      .option("--json", "print JSON")
      .action((options: ReplayCommand) => ended(async () => (await import("./replay.js")).replayByHand(options))),
  );
}

/** `timeline` with all below it. */
export function timelineCommand(): Command {
  const timeline = strict(new Command("timeline").description("work on stored timelines"));
  strict(timeline.command("rebuild"))
    .description("rebuild home timelines from the upstreams, whatever state they are in; nobody is notified")
    .argument("[users...]", "whose")
    .option("--all", "all there are")
    .option("--shared", "local and global, from the log: what is older than the log goes")
    .option("--after <place>", "with --all: go on where an earlier run was")
    .option("--rate <per second>", "timelines a second at most", rateOf, REBUILD_RATE)
    .option("--json", "print JSON")
    .action((users: string[], options: Omit<RebuildCommand, "users">, command: Command) => {
      const chosen = { ...options, users };
      const fault = rebuildFault(chosen);
      if (fault) command.error(`error: ${fault}`);
      return ended(async () => (await import("./rebuild.js")).rebuildByHand(chosen));
    });
  return timeline;
}

function rebuildFault({ users, all, shared, after }: RebuildCommand): string | undefined {
  if (all && users.length > 0) return "name users, or --all, not both";
  if (after !== undefined && !all) return "--after goes with --all";
  return all || shared || users.length > 0 ? undefined : "say which timelines: users, --all, or --shared";
}

/** `audit`. */
export function auditCommand(): Command {
  return strict(
    new Command("audit")
      .description("compare timelines with what the upstreams and the log say; exits 1 where something differs")
      .option("--users <count>", "how many homes, picked at random", countOf, AUDIT_USERS)
      .option("--user <id...>", "these, and none at random")
      .addOption(
        new Option("--timeline <name...>", "of these only (default: all, or with --user homes)").choices(TIMELINES),
      )
      .option("--fix", "rebuild those that differ, and look again")
      .option("--json", "print JSON")
      .action((options: AuditCommand) => ended(async () => (await import("./audit.js")).auditByHand(options))),
  );
}

/** Commander has said what is wrong; only the exit code is ours. */
function strict(command: Command): Command {
  return command.showHelpAfterError().exitOverride((error: CommanderError) => {
    process.exit(error.exitCode === 0 ? 0 : USAGE);
  });
}

/** The exit code is set, not forced, so that all of the output gets out. */
async function ended(work: () => Promise<number>): Promise<void> {
  process.exitCode = await work();
}

function countOf(text: string): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= 1 && value <= MOST_AUDITED) return value;
  throw new InvalidArgumentError(`must be a whole number from 1 to ${MOST_AUDITED}`);
}

function rateOf(text: string): number {
  const value = Number(text);
  if (/^\d+(\.\d+)?$/.test(text) && value > 0 && value <= MAX_RATE) return value;
  throw new InvalidArgumentError(`must be a number up to ${MAX_RATE}, and more than 0`);
}
