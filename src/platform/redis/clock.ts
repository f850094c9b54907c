import { type Clock, SECOND } from "../../kernel/time.js";
import type { Scripts } from "./scripts.js";

const SAMPLE_MS = 15 * SECOND;

/** The clock of a Redis server, as seen from here. */
export interface RedisClock {
  /** Its time now, in ms since the epoch. */
  now: Clock;
  /** Asks it again. */
  sample(): Promise<void>;
  close(): void;
}

/**
 * Follows the server's clock: asked at the start and then every 15 s. The
 * answer counts for the middle of the round trip (Cristian's algorithm).
 */
export function followClock(scripts: Scripts): RedisClock {
  let offset = 0;
  const sample = async (): Promise<void> => {
    const sent = Date.now();
    const [seconds, micros] = (await scripts.command("time", (client) => client.time())) as unknown as [number, number];
    offset = Number(seconds) * 1_000 + Number(micros) / 1_000 - (sent + Date.now()) / 2;
  };
  const timer = setInterval(() => void sample().catch(() => undefined), SAMPLE_MS);
  timer.unref();
  return { now: () => Date.now() + offset, sample, close: () => clearInterval(timer) };
}
