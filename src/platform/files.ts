import { readFileSync } from "node:fs";

/**
 * The returned function reads the file each time. While the file is being swapped and cannot be read, it returns what it
 * read before.
 *
 * @throws Error if the file cannot be read now
 */
export function rereading(file: string): () => Buffer {
  let contents = readFileSync(file);
  return () => {
    try {
      contents = readFileSync(file);
    } catch {
      // The sample of certificates reports a file that stays unreadable.
    }
    return contents;
  };
}
