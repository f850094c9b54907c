import { readFileSync } from "node:fs";

/**
 * The returned function reads the file each time. While it cannot, since the file is being swapped, what was read before
 * counts.
 *
 * @throws Error where the file cannot be read now
 */
export function rereading(file: string): () => Buffer {
  let held = readFileSync(file);
  return () => {
    try {
      held = readFileSync(file);
    } catch {
      // The sample of certificates reports a file that stays unreadable.
    }
    return held;
  };
}
