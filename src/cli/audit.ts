import type { Reports } from "../consistency/audit/audit.js";
import type { TimelineKind } from "../consistency/audit/ports.js";
import { reportsAsJson, reportsAsText } from "../consistency/audit/present.js";
import { type Auditing, createAuditing } from "../roles/auditing.js";
import { atWorkbench, INTERRUPTED } from "./bootstrap.js";
import { createPacedProgress } from "./terminal.js";

/** What `audit` is told. */
export interface AuditCommand {
  /** How many users are picked at random, where none is named. */
  readonly users: number;
  readonly user?: readonly string[];
  /** Unset: all, or the homes of the users named. */
  readonly timeline?: readonly TimelineKind[];
  readonly fix?: boolean;
  readonly json?: boolean;
}

/**
 * `audit`; resolves to the exit code: 1 where something differs and was not
 * repaired, or could not be looked at, 130 where it was interrupted.
 */
export function auditByHand(command: AuditCommand): Promise<number> {
  return atWorkbench("audit", async ({ config, connections, log, interrupted }) => {
    const reports = await run(command, createAuditing(config, connections, log), interrupted);
    console.log(command.json ? JSON.stringify(reportsAsJson(reports)) : reportsAsText(reports));
    if (interrupted.aborted) return INTERRUPTED;
    const wrong = Object.values(reports).some(
      ({ differing, remaining, failed, unrepaired }) =>
        (command.fix ? remaining : differing).length + failed.length + unrepaired.length > 0,
    );
    return wrong ? 1 : 0;
  });
}

async function run(command: AuditCommand, auditing: Auditing, stopping: AbortSignal): Promise<Reports> {
  const { user, fix } = command;
  const chosen = new Set<TimelineKind>(command.timeline ?? (user ? ["home"] : ["home", "local", "global"]));
  if (user) chosen.add("home");
  const progress = createPacedProgress();
  const homes = async (): Promise<Reports> => {
    const users = user ?? (await auditing.sample(command.users));
    const said = (looked: number): void => progress.say(() => `${looked} of ${users.length} users looked at`);
    return { home: await auditing.homes(users, { fix, stopping, progress: said }) };
  };
  const audits = [...chosen].map(
    async (kind): Promise<Reports> =>
      kind === "home" ? homes() : { [kind]: await auditing.shared(kind, { fix, stopping }) },
  );
  return Object.assign({}, ...(await Promise.all(audits).finally(() => progress.end())));
}
