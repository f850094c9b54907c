import { AppError, codeOf, oneLine } from "../../kernel/errors.js";
import { failpoint } from "../../kernel/failpoints.js";
import { type Clock, SECOND } from "../../kernel/time.js";
import { destinationOf, overtakenBy, type RedrivenMessage, type Upstreams } from "./destination.js";
import type { DeadLetterStore } from "./stored-dead-letter.js";

export type Causes = { readonly seq: number; readonly why: string }[];

/** JSON of a redrive: each sequence ends in one of the lists. */
export interface Report {
  readonly redriven: number[];
  /** Kept: they can never be redriven as they are. */
  readonly refused: Causes;
  /** Kept: another attempt may succeed. */
  readonly failed: Causes;
  /** Deleted: the upstreams show a later change. */
  readonly overtaken: Causes;
}

export interface RedriveDeps {
  readonly store: DeadLetterStore;
  /** Resolves after the PubAck, also for a duplicate. */
  readonly publish: (message: RedrivenMessage) => Promise<unknown>;
  /** Resolves to the max_age of the log in ms, or to Infinity. */
  readonly logAgeMs: () => Promise<number>;
  readonly upstreams: Upstreams | undefined;
  readonly now: Clock;
  readonly pause: (ms: number, signal?: AbortSignal) => Promise<void>;
}

export interface RedriveOptions {
  readonly rate?: number | undefined;
  readonly dryRun?: boolean | undefined;
  /** Once it aborts, the message in flight is finished and the others are reported as failed. */
  readonly stopping?: AbortSignal | undefined;
  readonly onProgress?: ((report: Report) => void) | undefined;
}

/** The rate is low enough for upstreams that have just recovered. */
export const DEFAULT_RATE = 100;

/** Number of dead letters in a row that meet an unavailable server before the work ends. */
const GIVE_UP_AFTER = 3;

interface Pacing {
  readonly stopping?: AbortSignal | undefined;
  /** Resolves when the next one may begin. */
  readonly throttle?: () => Promise<void>;
}

/** `work` resolves to whether a server was unavailable. Returns the dead letters that were not tried. */
export async function oneByOne(
  seqs: readonly number[],
  { stopping, throttle }: Pacing,
  work: (seq: number) => Promise<boolean>,
): Promise<Causes> {
  let unavailableInRow = 0;
  for (const [index, seq] of seqs.entries()) {
    const notTried = (why: string): Causes =>
      seqs.slice(index).map((untried) => ({ seq: untried, why: `not tried: ${why}` }));
    if (unavailableInRow >= GIVE_UP_AFTER) return notTried("a server was unavailable for those before it");
    await throttle?.();
    if (stopping?.aborted) return notTried("the process stops");
    unavailableInRow = (await work(seq)) ? unavailableInRow + 1 : 0;
  }
  return [];
}

interface RedriveOutcome {
  readonly list: keyof Report;
  readonly why?: string;
  readonly unavailable?: boolean;
}

/**
 * Redrives dead letters one after the other, in the order given: each is published, and deleted only after the PubAck.
 * A redrive that is interrupted in between and repeated publishes the same id, so that the message is stored once.
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
  const throttle = async (): Promise<void> => {
    if (next > deps.now()) await deps.pause(next - deps.now(), options.stopping);
    next = Math.max(next, deps.now()) + gapMs;
  };
  options.onProgress?.(report);
  const notTried = await oneByOne(seqs, { stopping: options.stopping, throttle }, async (seq) => {
    const { list, why = "", unavailable } = await redriveOne(deps, seq, logAgeMs, options.dryRun);
    if (list === "redriven") report.redriven.push(seq);
    else report[list].push({ seq, why });
    options.onProgress?.(report);
    return unavailable === true;
  });
  return { ...report, failed: [...report.failed, ...notTried] };
}

async function redriveOne(deps: RedriveDeps, seq: number, logAgeMs: number, dryRun = false): Promise<RedriveOutcome> {
  try {
    const deadLetter = await deps.store.find(seq);
    if (!deadLetter) return { list: "failed", why: "it is not there any more" };
    const now = deps.now();
    const message = destinationOf(deadLetter, now);
    const olderThanLog = now - deadLetter.firstSeenAt > logAgeMs;
    const why = olderThanLog ? await overtakenBy(message, deps.upstreams, now) : undefined;
    if (!dryRun) {
      if (why === undefined) {
        await deps.publish(message);
        await failpoint("redriven", String(seq));
      }
      await removeRedriven(deps, seq, why === undefined);
    }
    return why === undefined ? { list: "redriven" } : { list: "overtaken", why };
  } catch (error) {
    const code = codeOf(error);
    const list = code === "invalid" || code === "poison" ? "refused" : "failed";
    return { list, why: oneLine(error), unavailable: code === "unavailable" };
  }
}

async function removeRedriven({ store }: RedriveDeps, seq: number, published: boolean): Promise<void> {
  try {
    await store.remove(seq);
  } catch (error) {
    const what = published ? "it was published again, but not deleted: redrive it once more" : "it was not deleted";
    throw new AppError(codeOf(error), `${what} (${oneLine(error)})`, { cause: error });
  }
}
