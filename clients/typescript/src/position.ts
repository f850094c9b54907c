/** Keeps positions of streams across reloads: `sessionStorage`, `localStorage`, or an object with two such methods. */
export interface PositionStorage {
  getItem(key: string): string | null | Promise<string | null>;
  setItem(key: string, id: string): unknown;
}

/** Returns the function that stores a position. A slow storage gets the newest one only. */
export function createKeeper(storage: PositionStorage, key: string): (id: string) => void {
  let next: string | undefined;
  let isBusy = false;
  const done = (): void => {
    isBusy = false;
    const id = next;
    if (id !== undefined) keep(id);
  };
  function keep(id: string): void {
    next = id;
    if (isBusy) return;
    next = undefined;
    try {
      const stored = storage.setItem(key, id);
      if (!(stored instanceof Promise)) return;
      isBusy = true;
      stored.then(done, done);
    } catch {
      // A full storage: the stream goes on, and the next reload begins at an older position.
    }
  }
  return keep;
}

/** No id: the gateway answers it with a `reset`. */
const UNREADABLE = "unreadable";

/**
 * Reads the stored position; "" if there is none, or the storage fails. A text that no header takes would make each
 * connection fail, so it is replaced.
 */
export async function readPosition(storage: PositionStorage | undefined, key: string): Promise<string> {
  try {
    const stored = ((await storage?.getItem(key)) ?? "").trim();
    return /^[ -~]*$/.test(stored) ? stored : UNREADABLE;
  } catch {
    return "";
  }
}
