import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { type Clock, SECOND } from "../kernel/time.js";
import type { Letter, Letters } from "./dead-letter.js";
import { destinationOf, type Redriven } from "./destination.js";
import { overtakenBy, type Upstreams } from "./superseded.js";

/** Letters that were not dealt with as asked, each with its cause. */
export type Verdicts = { readonly seq: number; readonly why: string }[];

/** What became of letters, as far as it went; every letter asked for ends in one of the lists. */
export interface Report {
  readonly redriven: number[];
  /** They can never be redriven as they are; they are kept. */
  readonly refused: Verdicts;
  /** It did not work this time; they are kept. */
  readonly failed: Verdicts;
  /** The world has gone on since; they are removed. */
  readonly overtaken: Verdicts;
}

/** What redriving works with. */
export interface RedriveDeps {
  readonly letters: Pick<Letters, "find" | "remove">;
  /** Resolves after the PubAck; that it had been stored before under its id is as good. */
  readonly publish: (message: Redriven) => Promise<unknown>;
  /** How long the log remembers, in ms; Infinity: for ever. */
  readonly logAgeMs: () => Promise<number>;
  /** Undefined where their addresses are not configured. */
  readonly upstreams: Upstreams | undefined;
  readonly now: Clock;
  readonly pause: (ms: number, signal?: AbortSignal) => Promise<void>;
}

/** How letters are redriven. */
export interface RedriveOptions {
  /** Letters a second at most; undefined: {@link DEFAULT_RATE}. */
  readonly rate?: number | undefined;
  /** Decides everything and changes nothing. */
  readonly dryRun?: boolean | undefined;
  /** Stops after the letter in hand; the rest is reported as failed. */
  readonly stopping?: AbortSignal | undefined;
  /** Is shown the report as it grows, first when it is empty. */
  readonly watch?: ((report: Report) => void) | undefined;
}

/** Slow enough for the upstreams of a service that has just been mended. */
export const DEFAULT_RATE = 100;

/** A server that was away for so many letters in a row is not asked for the others. */
const GIVE_UP_AFTER = 3;

type Fate = "redriven" | { readonly list: "refused" | "failed" | "overtaken"; readonly why: string; away?: boolean };

/**
 * Sends letters back to work, in the order given, one after the other: a
 * letter is published again, and only after the PubAck it is deleted.
 * Interrupted between the two and run again, it is published once only.
 */
export async function redrive(
  deps: RedriveDeps,
  seqs: readonly number[],
  options: RedriveOptions = {},
): Promise<Report> {
  const report: Report = { redriven: [], refused: [], failed: [], overtaken: [] };
  const logAgeMs = await deps.logAgeMs();
  const gapMs = options.dryRun ? 0 : SECOND / (options.rate ?? DEFAULT_RATE);
  let next = deps.now();
  let away = 0;
  options.watch?.(report);
  for (const seq of seqs) {
    if (next > deps.now()) await deps.pause(next - deps.now(), options.stopping);
    next = Math.max(next, deps.now()) + gapMs;
    const fate = given(options, away) ?? (await redriveOne(deps, seq, { logAgeMs, dryRun: options.dryRun === true }));
    away = typeof fate === "object" && fate.away ? away + 1 : 0;
    if (fate === "redriven") report.redriven.push(seq);
    else report[fate.list].push({ seq, why: fate.why });
    options.watch?.(report);
  }
  return report;
}

/** What is in store for a letter without looking at it. */
function given({ stopping }: RedriveOptions, away: number): Fate | undefined {
  if (stopping?.aborted) return { list: "failed", why: "not tried: the process stops" };
  if (away >= GIVE_UP_AFTER)
    return { list: "failed", why: "not tried: a server was away for those before it", away: true };
  return undefined;
}

interface Terms {
  readonly logAgeMs: number;
  readonly dryRun: boolean;
}

async function redriveOne(deps: RedriveDeps, seq: number, terms: Terms): Promise<Fate> {
  try {
    const letter = await deps.letters.find(seq);
    if (!letter) return { list: "failed", why: "it is not there any more" };
    return await decide(deps, letter, terms);
  } catch (error) {
    const code = codeOf(error);
    const list = code === "invalid" || code === "poison" ? "refused" : "failed";
    return { list, why: oneLine(error), away: code === "unavailable" };
  }
}

async function decide(deps: RedriveDeps, letter: Letter, { logAgeMs, dryRun }: Terms): Promise<Fate> {
  const now = deps.now();
  const { seq } = letter.listed;
  const message = destinationOf(letter, now);
  const forgotten = now - letter.firstSeenAt > logAgeMs;
  const why = forgotten ? await overtakenBy(message, deps.upstreams, now) : undefined;
  if (why === undefined && !dryRun) await publishAgain(deps, message, seq);
  if (!dryRun) await removed(deps, seq, why === undefined);
  return why === undefined ? "redriven" : { list: "overtaken", why };
}

async function publishAgain({ publish }: RedriveDeps, message: Redriven, seq: number): Promise<void> {
  await publish(message);
  await failpoint("redriven", String(seq));
}

async function removed({ letters }: RedriveDeps, seq: number, published: boolean): Promise<void> {
  try {
    await letters.remove(seq);
  } catch (error) {
    const what = published ? "it was published again, but not deleted: redrive it once more" : "it was not deleted";
    throw new AppError(codeOf(error), `${what} (${oneLine(error)})`, { cause: error });
  }
}
