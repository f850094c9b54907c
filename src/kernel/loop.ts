import { oneLine } from "./errors.js";
import type { Logger } from "./logger.js";
import { backoff, pause, SECOND } from "./time.js";

interface LoopOptions {
  /** A number it resolves to is the delay until the next round in ms, in place of `everyMs`. */
  readonly work: (stopping: AbortSignal) => Promise<unknown>;
  readonly everyMs: number;
  readonly firstAfterMs?: number;
  /** Draws delays evenly between half and one and a half times `everyMs`, so that processes do not work in step. */
  readonly jitter?: boolean;
  /** Each further failure in a row doubles this, up to the cap; the default is 1 s. */
  readonly backoffBaseMs?: number;
  readonly backoffCapMs?: number;
  readonly failed?: (error: unknown, failures: number) => void;
  readonly closeMs?: number;
}

export type Loop = ReturnType<typeof startLoop>;

/** Rounds never overlap; the delays between them do not keep the process alive. */
export function startLoop(options: LoopOptions) {
  const { work, everyMs, firstAfterMs = 0, jitter = false, backoffBaseMs = SECOND, backoffCapMs, failed } = options;
  const stopping = new AbortController();
  // Each pause has a controller of its own: AbortSignal.any would leave something at `stopping` with each round.
  let waking = new AbortController();
  const usual = (): number => (jitter ? everyMs * (0.5 + Math.random()) : everyMs);

  const wait = async (ms: number): Promise<void> => {
    await pause(ms, waking.signal);
    if (!stopping.signal.aborted) waking = new AbortController();
  };

  const run = async (): Promise<void> => {
    if (firstAfterMs > 0) await wait(firstAfterMs);
    for (let failures = 0; !stopping.signal.aborted; ) {
      try {
        const delay = await work(stopping.signal);
        failures = 0;
        if (delay !== 0) await wait(typeof delay === "number" ? delay : usual());
      } catch (error) {
        failed?.(error, ++failures);
        if (backoffCapMs === undefined) await wait(usual());
        else await pause(backoff(failures, backoffBaseMs, backoffCapMs), stopping.signal);
      }
    }
  };
  const running = run();

  return {
    /** Begins the next round now, or after the running one. Does not shorten the wait after a failure. */
    wake: (): void => waking.abort(),
    /** Aborts the signal of the running round and waits for its end. */
    close: async (): Promise<void> => {
      stopping.abort();
      waking.abort();
      await (options.closeMs === undefined ? running : Promise.race([running, pause(options.closeMs)]));
    },
  };
}

/** Only the first of several failures in a row is logged. */
export const warnOnce =
  (log: Logger, message: string): NonNullable<LoopOptions["failed"]> =>
  (error, failures) => {
    if (failures === 1) log.warn({ error: oneLine(error) }, message);
  };
