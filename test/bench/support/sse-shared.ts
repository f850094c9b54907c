import { setTimeout as pause } from "node:timers/promises";
import type { Summary } from "./measure.js";

export type ClientRequest =
  | { readonly open: { readonly port: number; readonly from: number; readonly to: number } }
  /** Of all streams together. */
  | { readonly events: number; readonly latency: boolean }
  | { readonly close: true };

export type ClientAnswer =
  | { readonly seconds: number; readonly times: Summary | undefined }
  | { readonly waiting: true }
  | { readonly fault: string };

export const AUTHORS = 10;

/** Whom the user of a stream follows. */
export const authorOf = (stream: number): string => `author${stream % AUTHORS}`;

/** A round sends every user one event: each one of their own, or all the same. */
export interface BareRequest {
  readonly rounds: number;
  readonly roundMs: number;
  readonly begin: number;
  readonly isShared?: boolean;
}

/** Answers the driver of the benchmark, whose clients are in a process of their own. */
export function answerRequests(answer: (request: ClientRequest) => Promise<ClientAnswer>): void {
  process.on("message", (request: ClientRequest) => {
    void answer(request).then(
      (value) => process.send?.(value),
      (error: unknown) => process.send?.({ fault: String(error) } satisfies ClientAnswer),
    );
  });
}

/** Ends the process of the clients with a fault, which fails the benchmark. */
export function fail(fault: string): never {
  process.send?.({ fault } satisfies ClientAnswer);
  process.exit(1);
}

/** Sends to each of the streams, evenly over `roundMs`: a burst would measure its own queue. */
export async function sendRound(streams: number, roundMs: number, sendOne: (stream: number) => void): Promise<void> {
  const started = performance.now();
  for (let n = 0; n < streams; n++) {
    sendOne(n);
    if (roundMs > 0 && n % 20 === 19)
      await pause(Math.max(0, started + (roundMs * (n + 1)) / streams - performance.now()));
  }
}
