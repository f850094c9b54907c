import { type Clock, SECOND } from "../../kernel/time.js";
import type { Majority } from "./majority.js";

/** A call that was answered, and may be made again. */
interface Good {
  readonly subject: string;
  readonly again: (deadline: number) => Promise<unknown>;
}

/** Asks an upstream that fails for somebody about somebody else, to learn whose fault it is. */
export interface Probe {
  /** Remembers a call that was answered. */
  remember(subject: string, again: Good["again"]): void;
  /**
   * Makes a remembered call about somebody else again, not too often; never rejects.
   *
   * @returns whether that was answered; undefined where there is nobody else to ask about
   */
  ask(failed: string): Promise<boolean | undefined>;
}

const EVERY_MS = SECOND / 4;
const TIMEOUT_MS = SECOND;

/** Makes the probe of one upstream. */
export function createProbe(majority: Pick<Majority, "note">, now: Clock = Date.now): Probe {
  // Two, so that one of them is somebody else.
  let good: readonly Good[] = [];
  let asked = Number.NEGATIVE_INFINITY;
  let asking: Promise<boolean | undefined> = Promise.resolve(undefined);
  return {
    remember(subject, again) {
      const [latest] = good;
      good =
        latest && latest.subject !== subject ? [{ subject, again }, latest] : [{ subject, again }, ...good.slice(1)];
    },
    ask(failed) {
      const other = good.find(({ subject }) => subject !== failed);
      if (other && now() - asked >= EVERY_MS) {
        asked = now();
        asking = again(other);
      }
      return asking;
    },
  };

  async function again(other: Good): Promise<boolean> {
    const answered = await other.again(now() + TIMEOUT_MS).then(
      () => true,
      () => false,
    );
    majority.note(other.subject, answered);
    return answered;
  }
}
