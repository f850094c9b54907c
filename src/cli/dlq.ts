import { type Letter, type Letters, MissingLetters } from "../dead-letters/dead-letter.js";
import { grouped } from "../dead-letters/groups.js";
import {
  groupsAsText,
  letterAsJson,
  letterAsLine,
  letterAsText,
  removalAsText,
  reportAsText,
} from "../dead-letters/present.js";
import { type RedriveDeps, type Report, redrive } from "../dead-letters/redrive.js";
import { type Removal, remove } from "../dead-letters/remove.js";
import { matches, type Selection, selectSeqs } from "../dead-letters/selection.js";
import { createLetters, createLogAge } from "../dead-letters/store.nats.js";
import { createUpstreams } from "../dead-letters/upstreams.grpc.js";
import { oneLine } from "../kernel/errors.js";
import { armFailpoints } from "../kernel/failpoints.js";
import { silent } from "../kernel/logger.js";
import { printableAddresses } from "../kernel/server-url.js";
import { pause } from "../kernel/time.js";
import { connectNats } from "../platform/nats/connect.js";
import { createPublish } from "../platform/nats/publish.js";
import { Closers } from "../roles/closers.js";
import { type Config, readCommandConfig } from "../roles/config/config.js";
import { checkFiles } from "../roles/config/files.js";
import { missingUpstreams, natsOptions, upstreamsOnDemand } from "../roles/connections.js";
import { confirm, createPacedProgress, toTerminal } from "./terminal.js";

/** What `dlq ls` is told. */
export interface ListOptions {
  readonly json?: boolean;
  readonly letters?: boolean;
  readonly reason?: string;
  readonly event?: string;
  readonly error?: string;
  /** In ms since the epoch. */
  readonly since?: number;
}

/** What `dlq rm` and `dlq redrive` are told. */
export interface ChangeOptions extends ListOptions {
  readonly all?: boolean;
  readonly dryRun?: boolean;
  /** Asks nobody; of rm only. */
  readonly force?: boolean;
  /** Letters a second; of redrive only. */
  readonly rate?: number;
}

/** Which letters are changed, and how. */
export type Chosen = ChangeOptions & Selection;

/** What a command works with. */
interface Desk {
  readonly letters: Letters;
  readonly redriving: RedriveDeps;
}

/** `dlq ls`; resolves to the exit code. */
export function list(options: ListOptions): Promise<number> {
  return atDesk(async ({ letters }) => {
    const chosen = matching(letters.read({ bodies: !options.json && !options.letters }), options);
    if (options.json) await printJsonArray(chosen);
    else if (options.letters) for await (const letter of chosen) console.log(letterAsLine(letter));
    else console.log(groupsAsText(await grouped(chosen)));
    return 0;
  });
}

/** `dlq show`; resolves to the exit code. */
export function show(seq: number, options: ListOptions): Promise<number> {
  return atDesk(async ({ letters }) => {
    const letter = await letters.find(seq);
    if (!letter) throw new MissingLetters([seq]);
    console.log(options.json ? JSON.stringify(letterAsJson(letter)) : letterAsText(letter));
    return 0;
  });
}

/** `dlq redrive`; resolves to the exit code: 1 where a letter was refused or failed. */
export function redriveChosen(options: Chosen): Promise<number> {
  return atDesk(async ({ letters, redriving }) => {
    const seqs = await selectSeqs(letters, options);
    const progress = createPacedProgress();
    const what = options.dryRun ? "looked at" : "redriven";
    const interrupted = new AbortController();
    process.once("SIGINT", () => interrupted.abort());
    const report = await redrive(redriving, seqs, {
      rate: options.rate,
      dryRun: options.dryRun,
      stopping: interrupted.signal,
      watch: (now) => progress.say(() => `${judgedIn(now)} of ${seqs.length} letters ${what}`),
    });
    progress.end();
    const dry = options.dryRun === true;
    console.log(options.json ? jsonOf(report, dry) : reportAsText(report, dry));
    return report.refused.length + report.failed.length === 0 ? 0 : 1;
  });
}

/** How many letters a redrive has been done with. */
const judgedIn = ({ redriven, refused, failed, overtaken }: Report): number =>
  redriven.length + refused.length + failed.length + overtaken.length;

/** `dlq rm`; resolves to the exit code: 1 where a letter could not be deleted, or who was asked did not say yes. */
export function removeChosen(options: Chosen): Promise<number> {
  return atDesk(async ({ letters }) => {
    const seqs = await selectSeqs(letters, options);
    if (!(await mayDelete(seqs, options))) return 1;
    const progress = createPacedProgress();
    const watch = (now: Removal): void => progress.say(() => `${now.removed.length} of ${seqs.length} letters deleted`);
    const removal = await remove(letters, seqs, { dryRun: options.dryRun, watch });
    progress.end();
    const dry = options.dryRun === true;
    console.log(options.json ? jsonOf(removal, dry) : removalAsText(removal, dry));
    return removal.failed.length === 0 ? 0 : 1;
  });
}

/** A letter that is deleted cannot be had again: somebody at a terminal is asked. */
async function mayDelete(seqs: readonly number[], { force, dryRun }: Chosen): Promise<boolean> {
  if (force || dryRun || seqs.length === 0) return true;
  const what = seqs.length === 1 ? "1 letter" : `${seqs.length} letters`;
  if (await confirm(`Delete ${what} for good?`)) return true;
  console.error("nothing was deleted");
  return false;
}

const jsonOf = (outcome: object, dry: boolean): string => JSON.stringify(dry ? { ...outcome, dry_run: true } : outcome);

async function atDesk(work: (desk: Desk) => Promise<number>): Promise<number> {
  const config = readCommandConfig(process.env);
  checkFiles(config);
  if (config.process.failpoints) armFailpoints(config.process.failpoints);
  const closers = new Closers();
  // Whoever reads the output may have seen enough (`| head`).
  process.stdout.on("error", () => process.exit(0));
  try {
    return await work(await openDesk(config, closers));
  } finally {
    await closers.closeAll(toTerminal);
  }
}

async function openDesk(config: Config, closers: Closers): Promise<Desk> {
  const connection = await connectNats({ ...natsOptions(config.nats, "dlq"), impatient: true }, silent).catch(
    (error) => {
      throw new Error(
        `NATS at ${printableAddresses(config.nats.servers)}: ${oneLine(error)}; start it there, or set NATS_URL`,
        { cause: error },
      );
    },
  );
  closers.add("NATS", () => connection.close());
  const upstreams = upstreamsOnDemand(config.upstreams, closers);
  const letters = createLetters(connection);
  const redriving = {
    letters,
    publish: createPublish(connection.jetstream()),
    logAgeMs: createLogAge(connection),
    upstreams:
      missingUpstreams(config.upstreams).length === 0 ? createUpstreams(() => upstreams("operator")) : undefined,
    now: Date.now,
    pause,
  };
  return { letters, redriving };
}

async function* matching(letters: AsyncIterable<Letter>, options: ListOptions): AsyncGenerator<Letter> {
  for await (const letter of letters) if (matches(letter, options)) yield letter;
}

/** One letter a line, as they come: there may be very many. */
async function printJsonArray(letters: AsyncIterable<Letter>): Promise<void> {
  let before = "[";
  for await (const { listed } of letters) {
    process.stdout.write(`${before}\n${JSON.stringify(listed)}`);
    before = ",";
  }
  process.stdout.write(before === "[" ? "[]\n" : "\n]\n");
}
