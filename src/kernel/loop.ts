import { backoff, pause, SECOND } from "./time.js";

/** Work repeated in the background until it is closed; rounds never overlap. */
export interface LoopOptions {
  /** One round. A number it resolves to is the delay until the next in ms, in place of `everyMs`. */
  readonly work: (stopping: AbortSignal) => Promise<unknown>;
  /** From the end of a round to the next, in ms. */
  readonly everyMs: number;
  /** Before the first round, in ms; unset: none. */
  readonly firstAfterMs?: number;
  /** Draws delays evenly between half and one and a half times `everyMs`, so that processes do not work in step. */
  readonly jitter?: boolean;
  /** Waits this long after a failure, doubled with each further one in a row up to the cap, in ms; unset: 1 s. */
  readonly backoffBaseMs?: number;
  /** Unset: the usual delay after a failure. */
  readonly backoffCapMs?: number;
  /** Called with each failure, and how many there were in a row. */
  readonly failed?: (error: unknown, failures: number) => void;
  /** How long `close` waits for the round under way, in ms; unset: until it ends. */
  readonly closeMs?: number;
}

export interface Loop {
  /** Begins the next round now, or after the one under way. It does not shorten the wait after a failure. */
  wake(): void;
  /** Aborts the signal of the round under way and waits for its end. */
  close(): Promise<void>;
}

/** Starts a loop. Its delays do not keep the process alive. */
export function startLoop(options: LoopOptions): Loop {
  const { work, everyMs, firstAfterMs = 0, jitter = false, backoffBaseMs = SECOND, backoffCapMs, failed } = options;
  const stopping = new AbortController();
  let woken = new AbortController();
  const usual = (): number => (jitter ? everyMs * (0.5 + Math.random()) : everyMs);

  const rest = async (ms: number): Promise<void> => {
    await pause(ms, AbortSignal.any([woken.signal, stopping.signal]));
    woken = new AbortController();
  };

  const run = async (): Promise<void> => {
    if (firstAfterMs > 0) await rest(firstAfterMs);
    for (let failures = 0; !stopping.signal.aborted; ) {
      try {
        const delay = await work(stopping.signal);
        failures = 0;
        if (delay !== 0) await rest(typeof delay === "number" ? delay : usual());
      } catch (error) {
        failed?.(error, ++failures);
        if (backoffCapMs === undefined) await rest(usual());
        else await pause(backoff(failures, backoffBaseMs, backoffCapMs), stopping.signal);
      }
    }
  };
  const running = run();

  return {
    wake: () => woken.abort(),
    close: async () => {
      stopping.abort();
      await (options.closeMs === undefined ? running : Promise.race([running, pause(options.closeMs)]));
    },
  };
}
