import { pause, SECOND } from "../../kernel/time.js";

const POLL_MS = SECOND / 4;

/** Waits until everything admitted before `since` is applied; false where that takes too long. */
export async function settled(
  readBacklogStart: () => Promise<number>,
  how: { readonly since: number; readonly patienceMs: number; readonly stopping?: AbortSignal | undefined },
): Promise<boolean> {
  const until = Date.now() + how.patienceMs;
  for (;;) {
    if ((await readBacklogStart()) >= how.since) return true;
    if (how.stopping?.aborted || Date.now() > until) return false;
    await pause(POLL_MS, how.stopping);
  }
}
