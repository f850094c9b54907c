import { join } from "node:path";

/** Variables of a process whose clock is so many ms ahead of that of the machine, and steps to the next at each SIGUSR2. */
export const shifted = (...ms: readonly number[]) => ({
  NODE_OPTIONS: `--import ${join(process.cwd(), "test/support/shifted-clock.mjs")}`,
  CLOCK_SHIFT_MS: ms.join(),
});
