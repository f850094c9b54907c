import { reportAsJson, reportAsText } from "../audit/present.js";
import { createAuditing } from "./auditing.js";
import { createPacedProgress } from "./terminal.js";
import { atWorkbench, INTERRUPTED } from "./workbench.js";

/** What `audit` is told. */
export interface AuditCommand {
  /** How many users are picked at random, where none is named. */
  readonly users: number;
  readonly user?: readonly string[];
  readonly fix?: boolean;
  readonly json?: boolean;
}

/**
 * `audit`; resolves to the exit code: 1 where something differs and was not
 * repaired, or could not be looked at, 130 where it was interrupted.
 */
export function auditByHand(command: AuditCommand): Promise<number> {
  return atWorkbench("audit", async ({ config, connections, log, interrupted }) => {
    const auditing = createAuditing(config, connections, log);
    const users = command.user ?? (await auditing.sample(command.users));
    const progress = createPacedProgress();
    const report = await auditing
      .audit(users, {
        fix: command.fix,
        stopping: interrupted,
        progress: (looked) => progress.say(() => `${looked} of ${users.length} users looked at`),
      })
      .finally(() => progress.end());
    console.log(command.json ? JSON.stringify(reportAsJson(report)) : reportAsText(report));
    if (interrupted.aborted) return INTERRUPTED;
    const wrong = command.fix ? report.remaining : report.differing;
    return wrong.length + report.failed.length === 0 ? 0 : 1;
  });
}
