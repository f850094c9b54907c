import { type Command, Option } from "commander";
import {
  type Auditor,
  openAuditor,
  type Reports,
  reportsAsJson,
  reportsAsText,
  TIMELINES,
  type TimelineKind,
} from "../consistency/index.js";
import { silent } from "../kernel/logger.js";
import { createTimelines } from "../timeline/index.js";
import { INTERRUPTED, interruption, openTimelines, withConnections } from "./bootstrap.js";
import { exitWith, JSON_OPTION, wholeNumber } from "./options.js";
import { withProgress } from "./terminal.js";

const DEFAULT_USERS = 100;
const MAX_USERS = 1_000_000;

interface AuditOptions {
  readonly users: number;
  readonly user?: readonly string[];
  readonly timeline?: readonly TimelineKind[];
  readonly fix?: boolean;
  readonly json?: boolean;
}

export function define(command: Command): void {
  command
    .option("--users <count>", "homes picked at random", wholeNumber({ min: 1, max: MAX_USERS }), DEFAULT_USERS)
    .option("--user <id...>", "the homes of these users, and none at random")
    .addOption(new Option("--timeline <name...>", "only these (default: all, or with --user homes)").choices(TIMELINES))
    .option("--fix", "rebuild those that differ, and compare again")
    .addOption(JSON_OPTION)
    .action(exitWith(audit));
}

/** Exit code 1: a timeline differs and was not repaired, or could not be audited. */
function audit(options: AuditOptions): Promise<number> {
  return withConnections({ name: "audit", open: openTimelines }, async (connections, config) => {
    const interrupted = interruption();
    const timelines = createTimelines({
      ...connections,
      upstreams: connections.upstreams("reads"),
      config,
      log: silent,
    });
    const reports = await run(options, openAuditor(config, { ...connections, log: silent }, timelines), interrupted);
    console.log(options.json ? JSON.stringify(reportsAsJson(reports)) : reportsAsText(reports));
    if (interrupted.aborted) return INTERRUPTED;
    const wrong = Object.values(reports).some(
      ({ differing, remaining, failed, unrepaired }) =>
        (options.fix ? remaining : differing).length + failed.length + unrepaired.length > 0,
    );
    return wrong ? 1 : 0;
  });
}

async function run(options: AuditOptions, auditor: Auditor, stopping: AbortSignal): Promise<Reports> {
  const { user, fix } = options;
  const kinds = new Set<TimelineKind>(options.timeline ?? (user ? ["home"] : ["home", "local", "global"]));
  if (user) kinds.add("home");
  return withProgress(async (say) => {
    const homes = async (): Promise<Reports> => {
      const users = user ?? (await auditor.sample(options.users));
      const progress = (done: number): void => say(() => `${done} of ${users.length} users audited`);
      return { home: await auditor.homes(users, { fix, stopping, progress }) };
    };
    const audits = [...kinds].map(
      async (kind): Promise<Reports> =>
        kind === "home" ? homes() : { [kind]: await auditor.shared(kind, { fix, stopping }) },
    );
    return Object.assign({}, ...(await Promise.all(audits)));
  });
}
