import type { OnProgress } from "./types.js";

const TICK_MS = 1_000;

/** Names the step that is going on, and repeats it with the seconds gone by while it lasts. */
export async function withProgress<T>(
  onProgress: OnProgress | undefined,
  text: string,
  work: () => Promise<T>,
): Promise<T> {
  if (onProgress === undefined) return work();
  onProgress(text);
  let seconds = 0;
  const timer = setInterval(() => {
    seconds += TICK_MS / 1_000;
    onProgress(`${text} (${seconds} s)`);
  }, TICK_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}
