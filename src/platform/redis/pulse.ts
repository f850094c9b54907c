import { AppError } from "../../kernel/errors.js";
import { pause } from "../../kernel/time.js";
import type { RedisClient } from "./connect.js";

const PING_MS = 250;

/** Whether a Redis we are connected to answers. */
export interface Pulse {
  /** @throws AppError `unavailable` as long as it does not. */
  check(): void;
  /** Takes note of how a command failed. */
  note(error: unknown): void;
}

/**
 * Follows a connection's pulse: after a command that timed out nobody waits
 * for the next one to, until a ping is answered. A cluster's nodes fail one by
 * one, so that none stands for the others there.
 */
export function followPulse(client: RedisClient): Pulse {
  let silent = false;
  const untilAnswered = async (): Promise<void> => {
    while (silent && client.status !== "end") {
      silent = await client.ping().then(
        () => false,
        () => true,
      );
      if (silent) await pause(PING_MS);
    }
  };
  return {
    check() {
      if (silent) throw new AppError("unavailable", "Redis: does not answer");
    },
    note(error) {
      if (silent || client.isCluster || (error as Error).message !== "Command timed out") return;
      silent = true;
      void untilAnswered();
    },
  };
}
