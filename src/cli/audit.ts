import { type Command, Option } from "commander";
import {
  type Auditor,
  isLeftWrong,
  openAuditor,
  type Report,
  type Reports,
  reportsAsJson,
  reportsAsText,
  TIMELINES,
  type TimelineKind,
} from "../consistency/index.js";
import { createThrottle } from "../kernel/concurrency.js";
import { silent } from "../kernel/logger.js";
import { openTimelines, runJob, timelinesOn } from "./bootstrap.js";
import { exitWith, JSON_OPTION, parseRate, parseUserIds, wholeNumber } from "./options.js";
import type { Say } from "./terminal.js";

const DEFAULT_USERS = 100;
const MAX_USERS = 1_000_000;

interface AuditOptions {
  readonly users: number;
  readonly user?: readonly string[];
  readonly timeline?: readonly TimelineKind[];
  readonly fix?: boolean;
  readonly rate?: number;
  readonly json?: boolean;
}

export function define(command: Command): void {
  command
    .option("--users <count>", "homes picked at random", wholeNumber({ min: 1, max: MAX_USERS }), DEFAULT_USERS)
    .option("--user <id...>", "the homes of these users, and none at random", parseUserIds)
    .addOption(new Option("--timeline <name...>", "only these (default: all, or with --user homes)").choices(TIMELINES))
    .option("--fix", "rebuild those that differ, and compare again")
    .option("--rate <per second>", "homes compared a second at most (default: no bound)", parseRate)
    .addOption(JSON_OPTION)
    .action(exitWith(audit));
}

/** Ends with exit code 1 if a timeline was left wrong, could not be audited, is undecided, or is of no known user. */
function audit(options: AuditOptions): Promise<number> {
  const job = { name: "audit", open: openTimelines, json: options.json };
  return runJob(job, async ({ connections, config, stopping, say }) => {
    const handles = { ...connections, log: silent };
    const auditor = openAuditor(config, handles, timelinesOn(connections, config));
    const reports = await run(options, auditor, { stopping, say });
    const failed = Object.values(reports).some((report) => isLeftWrong(report, { fix: options.fix === true }));
    return { json: reportsAsJson(reports), text: reportsAsText(reports), failed };
  });
}

async function run(
  { user, users: count, timeline, fix, rate }: AuditOptions,
  auditor: Auditor,
  { stopping, say }: { readonly stopping: AbortSignal; readonly say: Say },
): Promise<Reports> {
  const kinds = new Set<TimelineKind>(timeline ?? (user ? ["home"] : ["home", "local", "global"]));
  if (user) kinds.add("home");
  const homes = async (): Promise<Report> => {
    const users = user ?? (await auditor.sample(count));
    const progress = (done: number): void => say(() => `${done} of ${users.length} users audited`);
    const throttle = rate === undefined ? undefined : createThrottle(rate);
    return auditor.homes(users, { fix, stopping, throttle, progress, named: user !== undefined });
  };
  const audits = [...kinds].map(
    async (kind) => [kind, await (kind === "home" ? homes() : auditor.shared(kind, { fix, stopping }))] as const,
  );
  return Object.fromEntries(await Promise.all(audits));
}
