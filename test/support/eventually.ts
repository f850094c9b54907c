import { setTimeout as delay } from "node:timers/promises";

/** Time in which a fact must come true unless a test says otherwise. */
const PATIENCE_MS = 30_000;
const POLL_MS = 20;

/** Waits until `fact` holds; the error names it and carries the last thing seen. */
export async function eventually(
  fact: () => Promise<boolean | string> | boolean | string,
  what: string,
  patienceMs: number = PATIENCE_MS,
): Promise<void> {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    const seen = await fact();
    if (seen === true) return;
    if (Date.now() > deadline) {
      const detail = typeof seen === "string" ? `: ${seen}` : "";
      throw new Error(`not within ${patienceMs} ms: ${what}${detail}`);
    }
    await delay(POLL_MS);
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
