import { type Command, Option } from "commander";
import { openUndoLost } from "../consistency/index.js";
import { printable } from "../kernel/errors.js";
import { silent } from "../kernel/logger.js";
import type { Connections } from "../roles/connections.js";
import { type Answer, type Job, openTimelines, runJob } from "./bootstrap.js";
import { exitWith, JSON_OPTION, parseRate } from "./options.js";
import { confirm } from "./terminal.js";
import { DEFAULT_RATE, rebuildChosen } from "./timeline.js";

const MOST_NAMED = 1_000;

interface RecoverOptions {
  readonly databaseIsTheTruth?: boolean;
  readonly dryRun?: boolean;
  readonly force?: boolean;
  readonly rate: number;
  readonly json?: boolean;
}

export function define(command: Command): void {
  command
    .addOption(
      new Option(
        "--database-is-the-truth",
        "required: drops and follows that the upstreams do not know are undone everywhere",
      ).makeOptionMandatory(),
    )
    .option("--dry-run", "only count what would be undone")
    .option("-f, --force", "do not ask, also where the upstreams know no drop of the log at all")
    .option("--rate <per second>", "timelines rebuilt a second at most", parseRate, DEFAULT_RATE)
    .addOption(JSON_OPTION)
    .action(exitWith(recover));
}

/** Ends with exit code 1 if something could not be judged or rebuilt, or nothing was done. */
function recover(options: RecoverOptions): Promise<number> {
  return runJob({ name: "recover", open: openTimelines, json: options.json }, (job) => run(job, options));
}

async function run(job: Job<Connections>, { dryRun, force, rate }: RecoverOptions): Promise<Answer> {
  const { connections, stopping, say } = job;
  const lost = openUndoLost({ ...connections, log: silent });
  const options = { stopping, progress: (text: string) => say(() => text) };
  const findings = await lost.find(options);
  const { phantoms, edges, failed, known } = findings;
  const revived = findings.revived.map(({ drop }) => drop);
  const counts = { drops: phantoms.length, edges: edges.length, not_judged: failed };
  const json = { ...counts, revived: revived.slice(0, MOST_NAMED), revived_count: revived.length };
  const lines = [
    `${phantoms.length} drops of the log and ${edges.length} follow edges are not in the upstreams`,
    ...(failed > 0 ? [`${failed} drops could not be judged: their authors cannot be read`] : []),
    ...(revived.length > 0 ? [revivedAsText(revived)] : []),
  ];
  const answer = (more: object, line: string, wrong: boolean): Answer => ({
    json: { ...json, undone: false, ...more },
    text: [...lines, line].join("\n"),
    failed: wrong || failed > 0,
  });
  if (stopping.aborted || dryRun) return answer({}, "nothing was changed", stopping.aborted);
  if (known === 0 && phantoms.length > 0 && !force)
    return answer(
      {},
      "the upstreams know no drop of the log: is it the right address? With --force all are deleted",
      true,
    );
  if (!force && !(await confirm(`Undo ${phantoms.length} drops and ${edges.length} follow edges for good?`)))
    return answer({}, "nothing was changed", true);
  await lost.undo(findings, options);
  if (stopping.aborted) return answer({}, "stopped before the end; run it again", true);
  const rebuilt = await rebuildChosen(job, { users: [], all: true, shared: true, rate });
  return answer({ undone: true, rebuild: rebuilt.json }, rebuilt.text, rebuilt.failed === true);
}

function revivedAsText(revived: readonly string[]): string {
  const named = revived.slice(0, 10).map((drop) => printable(JSON.stringify(drop)));
  const more = revived.length > named.length ? ", …" : "";
  return `${revived.length} drops were deleted after the backup, and the upstreams have them again; timelines go on hiding them, delete them there: ${named.join(", ")}${more}`;
}
