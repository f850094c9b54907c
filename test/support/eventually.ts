import { setTimeout as delay } from "node:timers/promises";

/** Time in which a fact must come true unless a test says otherwise. */
const PATIENCE_MS = 30_000;
/** Looks cost CPU time of the test and of its servers: the longer a fact takes, the more seldom they are. */
const POLL_MIN_MS = 5;
const POLL_MAX_MS = 80;
const looksAfter = (elapsedMs: number): number => Math.min(POLL_MAX_MS, Math.max(POLL_MIN_MS, elapsedMs / 5));

/** Waits until `fact` holds; the error names it and carries the last thing seen. */
export async function eventually(
  fact: () => Promise<boolean | string> | boolean | string,
  what: string,
  patienceMs: number = PATIENCE_MS,
): Promise<void> {
  const start = performance.now();
  for (;;) {
    const seen = await fact();
    if (seen === true) return;
    const elapsedMs = performance.now() - start;
    if (elapsedMs > patienceMs) {
      const detail = typeof seen === "string" ? `: ${seen}` : "";
      throw new Error(`not within ${patienceMs} ms: ${what}${detail}`);
    }
    await delay(looksAfter(elapsedMs));
  }
}

/** Repeats an assertion until it passes; after the patience its own error is thrown. */
export async function becomes(assertion: () => Promise<void>, patienceMs: number = PATIENCE_MS): Promise<void> {
  let failed: unknown;
  const passes = (): Promise<boolean> =>
    assertion().then(
      () => true,
      (error: unknown) => {
        failed = error;
        return false;
      },
    );
  await eventually(passes, "an assertion", patienceMs).catch((error: unknown) => {
    throw failed ?? error;
  });
}
